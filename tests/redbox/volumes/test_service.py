"""Making and deleting folders where the disk, the agent or the journal is in the way."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redbox.agents.errors import AgentError, AgentUnavailable, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.core.clock import SystemClock
from redbox.core.domain import Caller, Owner, Role, UnixUser
from redbox.core.token_buckets import Rate
from redbox.jobs.errors import RateLimited
from redbox.jobs.store.journal import Journal
from redbox.observability.job_audit import AuditEntry
from redbox.volumes import service, volume_index
from redbox.volumes.errors import (
    TooManyVolumes,
    VolumeConflict,
    VolumeForbidden,
    VolumeFull,
    VolumeNotFound,
    VolumesError,
    VolumeUnavailable,
)
from redbox.volumes.service import REMOVALS_OF_A_USER, VolumeService
from redbox.volumes.settings import VolumesSettings
from redbox.volumes.volume_index import KEPT_AFTER_DELETION, VolumeIndex
from redbox_api.models import VolumeRequest

ALICE = UnixUser("alice", 2001)
CALLER = Caller("alice", Owner("prod", "physics", "default", "uid-1"), frozenset({Role.SUBMIT}), ALICE)
CARETAKER = Caller("resourced", Owner("prod", "red-box", "resourced"), frozenset({Role.VOLUMES}))
REQUEST = VolumeRequest(claim="data")


class Disk:
    """An agent, and the pool that has it for every user."""

    def __init__(self) -> None:
        self.hello = SimpleNamespace(home="/home/alice/")
        self.folders: dict[str, int] = {}
        self.fault: Exception | None = None
        self.asked_for: list[UnixUser] = []
        self.removals: list[tuple[str, int | None]] = []
        self.gate: asyncio.Event | None = None
        self.at_gate = asyncio.Event()
        self.waiting = 0
        self.owner = ALICE.uid

    async def agent(self, user: UnixUser, _: str) -> Disk:
        self.asked_for.append(user)
        return self

    async def make_own_directory(self, path: str, *, mode: int) -> Any:
        assert mode == 0o700
        if self.fault:
            raise self.fault
        inode = self.folders.setdefault(path, 2**63 + len(self.folders))
        return SimpleNamespace(uid=self.owner, inode=inode)

    async def remove_own_directory(self, path: str, *, inode: int, deadline: float) -> None:
        assert deadline > 60  # a million files take minutes
        await self._remove(path, inode)

    async def remove(self, path: str) -> None:
        """Only an empty directory."""
        await self._remove(path, None)

    async def _remove(self, path: str, inode: int | None) -> None:
        if self.gate:
            self.at_gate.set()
            self.waiting += 1
            await self.gate.wait()
        if self.fault:
            raise self.fault
        self.removals.append((path, inode))
        self.folders.pop(path, None)


@pytest.fixture
def disk() -> Disk:
    return Disk()


class World:
    """A service that can be started again on the same journal."""

    def __init__(self, journal: Path, disk: Disk, **settings: Any) -> None:
        self.disk = disk
        self.audit: list[AuditEntry] = []
        self._directory = journal
        self._settings = VolumesSettings(**settings)
        self._journal: Journal | None = None
        self.start()

    def start(self) -> None:
        """As after a crash: nothing but the journal is left."""
        self.close()
        self._journal = Journal(self._directory)
        self.index = VolumeIndex(self._journal)
        pool = cast("AgentPool", self.disk)
        self.service = VolumeService(
            self.index, pool, self._settings, clock=SystemClock(), audit=self.audit.append
        )

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(entry.act, entry.outcome) for entry in self.audit]


@pytest.fixture
def world(tmp_path: Path, disk: Disk) -> Iterator[World]:
    world = World(tmp_path, disk)
    yield world
    world.close()


async def test_the_name_says_namespace_claim_and_handle(world: World) -> None:
    volume, created = await world.service.put(CALLER, "h1", REQUEST)
    assert (volume.path, created) == ("/home/alice/redbox/volumes/physics-data-h1", True)
    assert world.outcomes == [("make-volume", "done")]
    assert world.audit[0].job == "prod/physics/default/volumes/h1"


@pytest.mark.parametrize(
    ("directory", "path"),
    [("/scratch/{user}/pv", "/scratch/alice/pv/"), ("{home}/{user}/", "/home/alice/alice/")],
)
async def test_the_administrator_chooses_the_place(
    tmp_path: Path, disk: Disk, directory: str, path: str
) -> None:
    world = World(tmp_path, disk, directory=directory)
    volume, _ = await world.service.put(CALLER, "h1", REQUEST)
    assert volume.path == f"{path}physics-data-h1"
    world.close()


@pytest.mark.parametrize("directory", ["volumes", "/a/../b", "/{namespace}", "/a/{home}", "x{home}"])
def test_a_template_that_cannot_work_is_refused(directory: str) -> None:
    with pytest.raises(ValueError, match=r"must be absolute|may have"):
        VolumesSettings(directory=directory)


async def test_a_record_outlives_the_server(world: World) -> None:
    volume, _ = await world.service.put(CALLER, "h1", REQUEST)
    world.start()
    assert world.service.get(CALLER, "h1") == volume
    again, created = await world.service.put(CALLER, "h1", REQUEST)
    assert (again, created) == (volume, False)


async def test_a_crash_between_record_and_folder_is_repaired_by_the_next_put(world: World) -> None:
    world.disk.fault = AgentUnavailable("it ended")
    with pytest.raises(AgentError):
        await world.service.put(CALLER, "h1", REQUEST)
    world.start()
    assert world.service.get(CALLER, "h1").made is False
    world.disk.fault = None
    volume, created = await world.service.put(CALLER, "h1", REQUEST)
    assert (volume.made, created) == (True, True)


async def test_what_was_never_confirmed_is_deleted_only_if_it_is_empty(world: World) -> None:
    world.disk.fault = AgentUnavailable("it ended")
    with pytest.raises(AgentError):
        await world.service.put(CALLER, "h1", REQUEST)
    world.disk.fault = SystemCallFailed(errno.ENOTEMPTY, "Directory not empty", "/x")
    with pytest.raises(VolumeConflict, match="nothing was deleted"):
        await world.service.delete(CALLER, "h1")
    world.disk.fault = None
    await world.service.delete(CALLER, "h1")
    assert [inode for _, inode in world.disk.removals] == [None]


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (errno.EDQUOT, VolumeFull, "alice's quota on this file system is used up"),
        (errno.ENOSPC, VolumeFull, "the file system is full"),
        (errno.EACCES, VolumeForbidden, "volumes.directory"),
        (errno.EROFS, VolumeForbidden, "Read-only"),
        (errno.ENOTDIR, VolumeConflict, "is not a folder"),
    ],
)
async def test_the_disks_refusals_are_said_in_words(
    world: World, number: int, error: type[VolumesError], words: str
) -> None:
    world.disk.fault = SystemCallFailed(number, "Read-only file system", "/home/alice/redbox/volumes/x")
    with pytest.raises(error, match=words):
        await world.service.put(CALLER, "h1", REQUEST)
    assert world.outcomes == [("make-volume", error.__name__)]


async def test_a_folder_of_somebody_else_is_not_taken(world: World) -> None:
    world.disk.owner = 4000
    with pytest.raises(VolumeConflict, match="does not belong to alice"):
        await world.service.put(CALLER, "h1", REQUEST)


async def test_a_user_has_a_limited_number(tmp_path: Path, disk: Disk) -> None:
    world = World(tmp_path, disk, per_user=1)
    await world.service.put(CALLER, "h1", REQUEST)
    await world.service.put(CALLER, "h1", REQUEST)
    with pytest.raises(TooManyVolumes, match="delete some"):
        await world.service.put(CALLER, "h2", REQUEST)
    await world.service.delete(CALLER, "h1")
    await world.service.put(CALLER, "h2", REQUEST)
    world.close()


async def test_requests_at_once_make_no_more_than_one_after_the_other(tmp_path: Path, disk: Disk) -> None:
    world = World(tmp_path, disk, per_user=2)
    putting = (world.service.put(CALLER, f"h{number}", REQUEST) for number in range(5))
    outcomes = [type(outcome) for outcome in await asyncio.gather(*putting, return_exceptions=True)]
    assert (outcomes.count(TooManyVolumes), world.service.count, len(disk.folders)) == (3, 2, 2)
    await world.service.delete(CALLER, "h0")
    await world.service.put(CALLER, "h9", REQUEST)
    world.close()


async def test_a_caller_makes_only_so_many_at_once(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PUTS", Rate(0.001, 2.0))
    world = World(tmp_path, disk)
    for number in range(2):
        await world.service.put(CALLER, f"h{number}", REQUEST)
    with pytest.raises(RateLimited, match=r"0\.001 a second, after 2 at once"):
        await world.service.put(CALLER, "h2", REQUEST)
    world.close()


async def test_the_role_volumes_has_it_deleted_as_the_recorded_user(world: World) -> None:
    volume, _ = await world.service.put(CALLER, "h1", REQUEST)
    world.disk.asked_for.clear()
    await world.service.delete(CARETAKER, "h1")
    assert world.disk.asked_for == [ALICE]
    assert [path for path, _ in world.disk.removals] == [volume.path]
    assert world.audit[-1].caller == "resourced"


@pytest.mark.parametrize(
    "caller",
    [
        replace(CARETAKER, owner=Owner("other", "red-box", "resourced")),
        replace(CARETAKER, roles=frozenset({Role.READER})),
        replace(CALLER, owner=replace(CALLER.owner, account_uid="made-again")),
        replace(CALLER, owner=replace(CALLER.owner, namespace="chemistry")),
        replace(CALLER, user=UnixUser("bob", 2002)),
    ],
)
async def test_no_other_caller_deletes_it(world: World, caller: Caller) -> None:
    await world.service.put(CALLER, "h1", REQUEST)
    with pytest.raises(VolumeNotFound):
        await world.service.delete(caller, "h1")
    assert world.disk.removals == []
    assert world.outcomes[-1] == ("delete-volume", "VolumeNotFound")


async def test_an_operator_is_shown_the_missing_role(world: World) -> None:
    await world.service.put(CALLER, "h1", REQUEST)
    with pytest.raises(VolumeForbidden, match="lacks the role volumes"):
        await world.service.delete(replace(CARETAKER, roles=frozenset({Role.OPERATOR})), "h1")
    assert world.disk.removals == []


async def test_a_changed_mapping_does_not_move_a_volume(world: World) -> None:
    await world.service.put(CALLER, "h1", REQUEST)
    with pytest.raises(VolumeConflict, match="another Unix user"):
        await world.service.put(replace(CALLER, user=UnixUser("bob", 2002)), "h1", REQUEST)


async def test_two_deletions_are_one(world: World) -> None:
    await world.service.put(CALLER, "h1", REQUEST)
    world.disk.gate = asyncio.Event()
    both = [asyncio.ensure_future(world.service.delete(caller, "h1")) for caller in (CALLER, CARETAKER)]
    await asyncio.sleep(0)
    world.disk.gate.set()
    assert all(volume.deleted_at for volume in await asyncio.gather(*both))
    assert len(world.disk.removals) == 1


async def test_a_deletion_that_takes_long_goes_on_and_is_joined(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.service.put(CALLER, "h1", REQUEST)
    world.disk.gate = asyncio.Event()
    monkeypatch.setattr("redbox.volumes.service.ANSWER_WITHIN_S", 0.0)
    with pytest.raises(VolumeUnavailable, match="goes on"):
        await world.service.delete(CALLER, "h1")
    monkeypatch.undo()
    world.disk.gate.set()
    assert (await world.service.delete(CALLER, "h1")).deleted_at
    assert len(world.disk.removals) == 1


async def test_long_deletions_leave_the_users_agent_to_other_requests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [f"h{number}" for number in range(REMOVALS_OF_A_USER + 3)]
    for handle in handles:
        await world.service.put(CALLER, handle, REQUEST)
    world.disk.gate = asyncio.Event()
    monkeypatch.setattr("redbox.volumes.service.ANSWER_WITHIN_S", 0.01)
    for handle in handles:
        with pytest.raises(VolumeUnavailable, match="goes on"):
            await world.service.delete(CALLER, handle)
    while world.disk.waiting < REMOVALS_OF_A_USER:  # noqa: ASYNC110 (it sets no event)
        await asyncio.sleep(0.001)
    assert world.disk.waiting == REMOVALS_OF_A_USER
    monkeypatch.undo()
    world.disk.gate.set()
    assert all([(await world.service.delete(CALLER, handle)).deleted_at for handle in handles])
    assert len(world.disk.removals) == len(handles)


async def test_a_request_does_not_wait_for_the_end_of_a_long_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's disk may hang, or an agent be stopped: each request that waits takes memory of the server."""
    await world.service.put(CALLER, "h1", REQUEST)
    world.disk.gate = asyncio.Event()
    deletion = asyncio.ensure_future(world.service.delete(CALLER, "h1"))
    await world.disk.at_gate.wait()
    monkeypatch.setattr("redbox.volumes.service.ANSWER_WITHIN_S", 0.01)
    async with asyncio.timeout(60):
        with pytest.raises(VolumeUnavailable, match="takes long"):
            await world.service.put(CALLER, "h1", REQUEST)
    monkeypatch.undo()
    world.disk.gate.set()
    assert (await deletion).deleted_at
    with pytest.raises(VolumeConflict, match="stays deleted"):
        await world.service.put(CALLER, "h1", REQUEST)


async def test_a_folder_that_changes_meanwhile_is_deleted_later(world: World) -> None:
    volume, _ = await world.service.put(CALLER, "h1", REQUEST)
    for fault in (
        SystemCallFailed(errno.ENOENT, "No such file", "a file in it"),
        SystemCallFailed(errno.ENOTEMPTY, "Directory not empty", volume.path),
    ):
        world.disk.fault = fault
        with pytest.raises(VolumeUnavailable, match="still uses it"):
            await world.service.delete(CALLER, "h1")
    world.disk.fault = SystemCallFailed(errno.ENOENT, "No such file", volume.path)  # itself
    assert (await world.service.delete(CALLER, "h1")).deleted_at


async def test_of_the_deleted_rows_of_a_user_the_newest_are_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_index, "DELETED_OF_A_USER", 2)
    for handle in ("h1", "h2", "h3", "h4"):
        await world.service.put(CALLER, handle, REQUEST)
    for handle in ("h2", "h1", "h3"):
        await world.service.delete(CALLER, handle)
    world.start()
    assert [handle for handle in ("h1", "h2", "h3", "h4") if world.index.get(handle)] == ["h1", "h3", "h4"]
    assert world.index.count == 1


async def test_deleted_rows_are_forgotten_after_a_month(world: World) -> None:
    await world.service.put(CALLER, "h1", REQUEST)
    await world.service.put(CALLER, "h2", REQUEST)
    await world.service.delete(CALLER, "h1")
    now = datetime.now(UTC)
    await world.index.forget_deleted(now)
    assert world.index.get("h1") is not None
    await world.index.forget_deleted(now + KEPT_AFTER_DELETION + timedelta(days=1))
    world.start()
    assert (world.index.get("h1"), world.index.get("h2") is not None) == (None, True)
