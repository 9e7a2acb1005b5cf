"""Whether an sbatch may still be under way: only where nothing shows one, and all was seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.agents.protocol.answers import CommandResult, RecordedCommand, RecordedCommandState
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgents, done
from tests.redbox.slurm.submit.test_submitter import MARK


@pytest.mark.parametrize(
    ("kept", "processes", "expected"),
    [
        ({f"{MARK}.1": RecordedCommand(RecordedCommandState.RUNNING)}, "", True),
        (
            {
                f"{MARK}.1": RecordedCommand(RecordedCommandState.ENDED),
                f"{MARK}.2": RecordedCommand(RecordedCommandState.RUNNING),
            },
            "",
            True,
        ),
        ({f"{MARK}.1": RecordedCommand(RecordedCommandState.ENDED)}, "", False),
        ({f"{MARK}.1": RecordedCommand(RecordedCommandState.LOST)}, "", False),
        ({}, f"sbatch --parsable --comment={MARK} --hold\n", True),
        ({}, "sbatch --parsable --comment=rb1.other\n", False),
    ],
)
async def test_whether_an_sbatch_with_the_mark_runs_on_the_host(
    kept: dict[str, RecordedCommand],
    processes: str,
    expected: bool,  # noqa: FBT001
) -> None:
    agents = ScriptedAgents({"ps": done(processes)}, kept=kept)
    assert await SlurmManager(agents, REDBOX).submitting(ALICE, MARK) is expected


@pytest.mark.parametrize(
    "listed",
    [
        done("", "error: /proc must be mounted\n", code=1),
        replace(done("bash\n", code=-9), truncated=True),
    ],
)
async def test_a_list_of_processes_that_is_not_whole_shows_no_absence(listed: CommandResult) -> None:
    with pytest.raises(WorkloadManagerError, match="still under way could not be found out: ps"):
        await SlurmManager(ScriptedAgents({"ps": listed}), REDBOX).submitting(ALICE, MARK)
    found = replace(listed, stdout=f"sbatch --parsable --comment={MARK}\n".encode())
    assert await SlurmManager(ScriptedAgents({"ps": found}), REDBOX).submitting(ALICE, MARK)
