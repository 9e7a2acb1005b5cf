"""A submit's way through the user's agent, and what is known when it breaks off."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import Any

import pytest

from redbox.agents.errors import (
    AgentDied,
    AgentError,
    AgentTimeout,
    AgentUnavailable,
    CommandDetached,
    SystemCallFailed,
)
from redbox.agents.protocol.answers import CommandResult, RecordedCommand, RecordedCommandState
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import (
    Submission,
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
    SubmitUnknown,
    WorkloadManagerError,
)
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.submit.private_folder import private_folder
from redbox_api.models import JobRequest
from tests.redbox.slurm.captured import output
from tests.redbox.slurm.fakes import ALICE, CONFIG, REDBOX, ScriptedAgent, ScriptedAgents, done, late

MARK = "rb1.mark"


def submission(directory: str = "{home}/work", **fields: object) -> Submission:
    request = JobRequest.model_validate(
        {"batch": "#!/bin/sh\n"} | fields if "container" not in fields else fields
    )
    return Submission(request, MARK, "name", directory)


def accepted(job_id: str, *warnings: str) -> SubmitAccepted:
    """With the default outputs, and BOOT_TIME as slurmctld has it."""
    stem = f"/home/alice/work/slurm-{job_id}"
    return SubmitAccepted(
        job_id, warnings, "/home/alice/work", f"{stem}.out", f"{stem}.err", "2026-11-21T10:26:38"
    )


async def submit(
    agents: ScriptedAgents, asked: Submission | None = None, **settings: object
) -> SubmitOutcome:
    manager = SlurmManager(agents, REDBOX, SlurmSettings(**settings))
    return await manager.submit(ALICE, asked or submission())


async def test_a_submit_makes_the_directory_and_calls_sbatch_with_an_empty_environment() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n", "sbatch: warning: odd\n")})
    outcome = await submit(agents)
    assert outcome == accepted("7", "warning: odd")
    assert agents.directories == [("/home/alice/work", 0o777)]
    user, argv, script, env = agents.calls[-1]
    assert (user, script[:10], env) == ("alice", b"#!/bin/sh\n", {})
    assert "--chdir=/home/alice/work" in argv
    assert list(agents.kept) == [f"{MARK}.1"]


async def test_what_slurms_tools_need_is_in_their_environment_and_in_the_jobs() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    await submit(agents, environment={"SLURM_CONF": "/opt/slurm.conf"})
    assert agents.calls[-1][3] == {"SLURM_CONF": "/opt/slurm.conf"}


@pytest.mark.parametrize("failed", [late(), done("HOME=/wrong\0", "env: broken\n", code=1)])
async def test_an_environment_that_could_not_be_read_is_read_again(failed: Any) -> None:
    agents = ScriptedAgents({"sbatch": done("7\n"), "/usr/bin/env": failed})
    manager = SlurmManager(agents, REDBOX, SlurmSettings())
    assert isinstance(await manager.submit(ALICE, submission()), SubmitUnavailable)
    assert agents.called("sbatch") == []
    del agents.answers["/usr/bin/env"]
    outcome = await manager.submit(ALICE, submission())
    assert isinstance(outcome, SubmitAccepted)
    assert outcome.working_directory == "/home/alice/work"


async def test_a_home_that_has_moved_is_that_of_the_next_agent() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    manager = SlurmManager(agents, REDBOX, SlurmSettings())
    await manager.submit(ALICE, submission())
    agents.hello = replace(agents.hello, home="/new/alice", pid=4712)
    agents.answers["/usr/bin/env"] = done("HOME=/new/alice\0PATH=/usr/bin:/bin\0")
    outcome = await manager.submit(ALICE, replace(submission(), mark="rb1.next"))
    assert isinstance(outcome, SubmitAccepted)
    assert outcome.working_directory == "/new/alice/work"
    assert agents.directories[-1] == ("/new/alice/work", 0o777)
    await manager.submit(ALICE, replace(submission(), mark="rb1.last"))
    assert len(agents.called("/usr/bin/env")) == 2


@pytest.mark.parametrize(
    "lost",
    [
        AgentDied("gone", retry=False),
        AgentTimeout("silent", retry=False),
        CommandDetached("rb1.mark.1"),
    ],
)
async def test_an_agent_that_is_lost_over_sbatch_leaves_the_outcome_unknown(lost: AgentError) -> None:
    agents = ScriptedAgents({"sbatch": lost})
    assert isinstance(await submit(agents), SubmitUnknown)
    assert isinstance(
        await submit(agents), SubmitUnknown
    )  # it may still be under way: nothing is called again
    assert len(agents.called("sbatch")) == 1


async def test_an_sbatch_that_gave_no_answer_in_its_time_is_unknown() -> None:
    assert isinstance(await submit(ScriptedAgents({"sbatch": late()})), SubmitUnknown)


async def test_without_an_agent_nothing_was_submitted() -> None:
    assert isinstance(await submit(ScriptedAgents(no_agent=AgentUnavailable("busy"))), SubmitUnavailable)


async def test_a_submit_that_is_tried_again_gets_the_outcome_of_the_first() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    first, second = await submit(agents), await submit(agents)
    assert first == second
    assert len(agents.called("sbatch")) == 1


DRAINED = done("", "sbatch: error: Batch job submission failed: Required partition not available\n", 1)


async def test_a_submit_that_made_no_job_may_be_tried_again() -> None:
    dead = done("", "sbatch: error: Batch job submission failed: Unable to contact slurm controller\n", 1)
    agents = ScriptedAgents({"sbatch": [dead, done("7\n")]})
    assert isinstance(await submit(agents), SubmitUnavailable)
    assert await submit(agents) == accepted("7")
    assert list(agents.kept) == [f"{MARK}.1"]


async def test_however_often_slurm_said_not_now_the_job_is_submitted_once_it_may_be() -> None:
    agents = ScriptedAgents({"sbatch": [*[DRAINED] * 50, done("7\n")]})
    for _ in range(50):
        assert await submit(agents) == SubmitUnavailable(
            "Batch job submission failed: Required partition not available"
        )
    assert await submit(agents) == accepted("7")
    assert await submit(agents) == accepted("7")
    assert len(agents.called("sbatch")) == 51


async def test_twenty_names_that_were_used_up_for_nothing_are_no_obstacle() -> None:
    ended = {
        f"{MARK}.{n}": RecordedCommand(RecordedCommandState.ENDED, DRAINED, f"outcome {n}")
        for n in range(1, 21)
    }
    agents = ScriptedAgents({"sbatch": done("7\n")}, kept=ended)
    assert await submit(agents) == accepted("7")
    assert agents.kept[f"{MARK}.20"].completed == done("7\n")


async def test_after_twenty_submits_that_nobody_saw_the_end_of_none_is_begun() -> None:
    lost = {f"{MARK}.{n}": RecordedCommand(RecordedCommandState.LOST) for n in range(1, 21)}
    agents = ScriptedAgents({"sbatch": done("7\n")}, kept=lost)
    assert isinstance(await submit(agents, replace(submission(), held=True)), SubmitUnavailable)
    assert agents.called("sbatch") == []


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (
            RecordedCommand(RecordedCommandState.ENDED, done("7\n"), "accepted"),
            accepted("7"),
        ),
        (
            RecordedCommand(RecordedCommandState.RUNNING),
            SubmitUnknown("an earlier submit of this job is still under way"),
        ),
    ],
)
async def test_what_a_later_submit_of_an_older_release_became_is_seen_before_an_earlier_one_gives_way(
    last: RecordedCommand, expected: SubmitOutcome
) -> None:
    kept = {f"{MARK}.1": RecordedCommand(RecordedCommandState.ENDED, DRAINED, "drained"), f"{MARK}.2": last}
    agents = ScriptedAgents({"sbatch": done("8\n")}, kept=kept)
    assert await submit(agents) == expected
    assert agents.called("sbatch") == []


async def test_a_submit_in_doubt_never_gives_way_not_even_to_its_held_retry() -> None:
    doubt = RecordedCommand(
        RecordedCommandState.ENDED,
        done("", "sbatch: error: Socket timed out on send/recv operation\n", 1),
        "doubt",
    )
    agents = ScriptedAgents({"sbatch": done("8\n")}, kept={f"{MARK}.1": doubt})
    assert isinstance(await submit(agents, replace(submission(), held=True)), SubmitAccepted)
    assert agents.kept[f"{MARK}.1"] == doubt
    assert list(agents.kept) == [f"{MARK}.1", f"{MARK}.2"]


async def test_of_two_submits_that_would_replace_the_same_one_the_second_is_not_begun() -> None:
    class Overtaken(dict[str, RecordedCommand]):
        """Another server's submit is begun just after this one has looked."""

        def get(self, name: str, default: Any = None) -> Any:
            if name == f"{MARK}.2":
                self[f"{MARK}.1"] = RecordedCommand(RecordedCommandState.RUNNING)
            return super().get(name, default)

    drained = RecordedCommand(RecordedCommandState.ENDED, DRAINED, "drained")
    agents = ScriptedAgents({"sbatch": done("8\n")}, kept=Overtaken({f"{MARK}.1": drained}))
    assert isinstance(await submit(agents), SubmitUnknown)
    assert agents.called("sbatch") == []


@pytest.mark.parametrize(
    "kept",
    [
        RecordedCommand(RecordedCommandState.LOST),
        RecordedCommand(
            RecordedCommandState.ENDED,
            done("", "sbatch: error: Socket timed out on send/recv operation\n", 1),
        ),
    ],
)
async def test_after_a_submit_in_doubt_only_its_held_retry_calls_sbatch_again(kept: RecordedCommand) -> None:
    agents = ScriptedAgents({"sbatch": done("8\n")}, kept={f"{MARK}.1": kept})
    assert isinstance(await submit(agents), SubmitUnknown)
    assert agents.called("sbatch") == []
    held = replace(submission(), held=True)
    assert await submit(agents, held) == accepted("8")
    assert "--hold" in agents.called("sbatch")[0]


async def test_not_even_a_held_retry_is_begun_beside_one_that_is_under_way() -> None:
    agents = ScriptedAgents(
        {"sbatch": done("8\n")}, kept={f"{MARK}.1": RecordedCommand(RecordedCommandState.RUNNING)}
    )
    assert isinstance(await submit(agents, replace(submission(), held=True)), SubmitUnknown)
    assert agents.called("sbatch") == []


@pytest.mark.parametrize(
    ("number", "outcome"),
    [(errno.EACCES, SubmitRejected), (errno.ENOENT, SubmitRejected), (errno.ENOSPC, SubmitUnavailable)],
)
async def test_a_directory_that_cannot_be_made_is_reported_before_sbatch_runs(
    number: int, outcome: type
) -> None:
    agents = ScriptedAgents(no_directory=SystemCallFailed(number, "no", "/home/alice/work"))
    result = await submit(agents)
    assert isinstance(result, outcome)
    assert "/home/alice/work" in result.detail  # type: ignore[union-attr]
    assert agents.called("sbatch") == []


async def test_the_output_of_an_array_keeps_its_pattern_which_each_task_resolves() -> None:
    """By the array's own id it would be the file of one of them."""
    plain = submission()
    asked = replace(plain, request=plain.request.model_copy(update={"array": "0-3", "output": "out-%j"}))
    outcome = await submit(ScriptedAgents({"sbatch": done("8\n")}), asked)
    assert isinstance(outcome, SubmitAccepted)
    assert (outcome.stdout, outcome.stderr) == ("/home/alice/work/out-%j",) * 2


async def test_a_relative_directory_is_refused() -> None:
    assert isinstance(await submit(ScriptedAgents(), submission("work")), SubmitRejected)


FEDERATED = done("Federation: fed1\nSelf:       hpc1:ctl:6817 ID:1\n")


async def test_a_federation_is_refused_unless_the_administrator_allows_it() -> None:
    agents = ScriptedAgents({"scontrol show federation": FEDERATED, "sbatch": done("7\n")})
    refused = await submit(agents)
    assert isinstance(refused, SubmitRejected)
    assert "fed1" in refused.detail
    assert isinstance(await submit(agents, allow_federation=True), SubmitAccepted)


CONTAINER = {"image": "docker://app:1", "registry": {"username": "me", "password": "word"}}


async def test_credentials_are_laid_ready_for_the_job_alone() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    asked = submission(container=CONTAINER, env={"A": "1"})
    await submit(agents, asked)
    hidden = private_folder("/home/alice/work", MARK)
    assert agents.directories == [("/home/alice/work", 0o777), (hidden, 0o700)]
    assert b"'word'" not in agents.files[f"{hidden}/registry.sh"]
    assert b"=word;" in agents.files[f"{hidden}/registry.sh"]
    assert all(b"word" not in script for _, _, script, _ in agents.calls)
    assert f"cache={'/home/alice/.cache/redbox/images'}".encode() in agents.calls[-1][2]
    assert agents.removed == []


async def test_credentials_of_a_job_that_was_refused_are_taken_away() -> None:
    agents = ScriptedAgents({"sbatch": done("", "sbatch: error: Invalid qos specification\n", 1)})
    assert isinstance(await submit(agents, submission(container=CONTAINER)), SubmitRejected)
    assert agents.removed == [private_folder("/home/alice/work", MARK)]


async def test_what_was_laid_ready_for_a_job_is_taken_away_also_where_its_home_is_not_known_yet() -> None:
    for directory in ("/home/alice/work", "{home}/work"):
        agents = ScriptedAgents({})
        await SlurmManager(agents, REDBOX).tidy(ALICE, MARK, directory)
        assert agents.removed == [private_folder("/home/alice/work", MARK)]


async def test_a_kind_of_mpi_is_checked_against_what_the_cluster_has() -> None:
    agents = ScriptedAgents({"srun --mpi=list": done(output("24.11", "mpi.txt")), "sbatch": done("7\n")})
    for kind, outcome in (("pmix", SubmitAccepted), ("pmi2", SubmitRejected)):
        container = {"image": "/a.sif", "options": {"mpi": kind}}
        assert isinstance(await submit(agents, submission(container=container)), outcome)


async def test_a_check_that_hangs_is_a_fault_and_not_an_answer() -> None:
    manager = SlurmManager(ScriptedAgents({"sbatch": late()}), REDBOX)
    with pytest.raises(WorkloadManagerError) as caught:
        await manager.check(ALICE, submission())
    assert caught.value.timed_out


async def test_checks_of_one_user_run_one_after_the_other_and_none_waits_for_another_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running: list[str] = []
    most_of_alice = most = 0

    async def run(agent: ScriptedAgent, *argv: object, **_: object) -> CommandResult:
        del argv
        nonlocal most_of_alice, most
        running.append(agent.user.name)
        most_of_alice = max(most_of_alice, running.count("alice"))
        most = max(most, len(running))
        for _turn in range(10):
            await asyncio.sleep(0)
        running.remove(agent.user.name)
        return done("", "sbatch: Job 7 to start at 2026-11-28T10:00:00")

    manager = SlurmManager(ScriptedAgents({"sbatch": done("")}), REDBOX)
    await manager.check(ALICE, submission())  # the configuration has been read
    monkeypatch.setattr(ScriptedAgent, "run", run)
    bob = UnixUser("bob", 2002)
    await asyncio.gather(*(manager.check(user, submission()) for user in (ALICE, ALICE, ALICE, bob)))
    assert (most_of_alice, most) == (1, 2)


async def test_a_check_of_a_wrong_request_does_not_ask_slurm() -> None:
    agents = ScriptedAgents()
    check = await SlurmManager(agents, REDBOX).check(ALICE, submission(batch=""))
    assert (check.valid, agents.called("sbatch")) == (False, [])


async def test_while_slurms_configuration_cannot_be_read_nothing_is_submitted() -> None:
    agents = ScriptedAgents(
        {"scontrol show config": [done("", "Unable to contact slurm controller", 1), CONFIG]}
    )
    assert isinstance(await submit(agents), SubmitUnavailable)
    assert agents.called("sbatch") == []


async def test_no_more_is_kept_of_what_an_agent_says_of_its_account_than_an_account_has() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    assert await SlurmManager(agents, REDBOX).submit(ALICE, submission()) == accepted("7")
    limits = [
        limit for (_, argv, _, _), limit in zip(agents.calls, agents.limits, strict=True) if "-0" in argv
    ]
    assert [0 < limit <= 64 * 1024 for limit in limits] == [True]
