"""Which outputs exist, and where their absence shows anything."""

from __future__ import annotations

import errno

import pytest

from redbox.agents.errors import SystemCallFailed
from redbox.core.workload_manager import JobOutput, WorkloadManagerError
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.submit import output_lookup
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgents

WORK = "/home/alice/work"


def output(job_id: str, directory: str = WORK, name: str = "slurm-{}.out") -> JobOutput:
    return JobOutput(f"{directory}/{name.format(job_id)}", job_id, "name", ALICE, WORK)


async def find(agents: ScriptedAgents, *outputs: JobOutput) -> list[bool | None]:
    found = await SlurmManager(agents, REDBOX).find_outputs(ALICE, outputs)
    return [found.get(output) for output in outputs]


async def test_an_output_is_looked_for_in_the_listing_of_its_directory() -> None:
    agents = ScriptedAgents()
    assert await find(agents, output("7")) == [False]
    agents.files[output("7").path] = b""
    assert await find(agents, output("7")) == [True]
    agents.listed_only = True
    assert await find(agents, output("7")) == [True]
    for code, why in ((errno.ENOENT, "No such file or directory"), (errno.EACCES, "Permission denied")):
        agents.no_directory = SystemCallFailed(code, why, WORK)
        with pytest.raises(WorkloadManagerError, match=why):
            await find(agents, output("7"))


async def test_one_listing_shows_all_outputs_of_a_directory() -> None:
    agents = ScriptedAgents(files={output("8").path: b"", f"{WORK}/a-9_3.txt": b""})
    array = output("9", name="a-%A_%a.txt")
    other = output("10", name="b-%A_%a.txt")
    assert await find(agents, output("7"), output("8"), array, other) == [False, True, True, False]
    assert agents.listings == [(WORK, 4)]


async def test_very_many_are_looked_for_in_several_listings() -> None:
    agents = ScriptedAgents(files={output("130").path: b""})
    found = await find(agents, *(output(str(number)) for number in range(150)))
    assert [number for number, exists in enumerate(found) if exists] == [130]
    assert None not in found
    assert [count for _, count in agents.listings] == [100, 50]


async def test_of_a_listing_that_was_cut_absence_follows_from_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output_lookup, "FOUND_AT_MOST", 1)
    agents = ScriptedAgents(files={output("7").path: b"", output("8").path: b""})
    assert await find(agents, output("7"), output("8"), output("9")) == [True, None, None]


@pytest.mark.parametrize(
    ("directory", "place", "shared"),
    [
        ("/tmp", (1, "ext4", "/tmp"), False),
        ("/tmp", (5, "tmpfs", "/tmp"), False),
        ("/data", (5, "fuse.unheard-of", "/data"), False),
        ("/data", (5, "", "/data"), False),
        ("/data", (5, "nfs4", "/data"), True),
        ("/data", (5, "lustre", "/data"), True),
        (WORK, (1, "ext4", WORK), True),
        (WORK, (1, "", WORK), True),
        ("/link", (1, "ext4", WORK), True),
        (WORK, (1, "ext4", "/tmp"), False),
        (WORK, (5, "ext4", WORK), False),  # a disk of the login node
        (WORK, (1, "ext4", ""), False),  # an older agent
        ("/home/alice2", (1, "ext4", "/home/alice2"), False),
    ],
)
async def test_absence_shows_something_only_where_nodes_and_login_node_see_the_same(
    directory: str,
    place: tuple[int, str, str],
    shared: bool,  # noqa: FBT001
) -> None:
    agents = ScriptedAgents(places={directory: place})
    assert await find(agents, output("7", directory)) == [False if shared else None]
    agents.files[output("7", directory).path] = b""
    assert await find(agents, output("7", directory)) == [True]


async def test_without_a_home_of_its_own_a_users_directories_are_not_shared() -> None:
    agents = ScriptedAgents(places={"/home/alice": (1, "ext4", "/")})
    assert await find(agents, output("7", "/tmp")) == [None]
