"""Volumes, as callers ask for them: make, show, delete a folder.

Everything on disk is done by the agent of the user whom the folder belongs to. The handle is recorded before
the folder is made, and the folder's inode before it is answered: a crash in between leaves nothing that the
next PUT or DELETE of the handle does not find. A deletion may take long; it goes on when its caller's answer
is due, and the next DELETE joins it. Used as `async with VolumeService(...)`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Self

import structlog

from redbox.agents.errors import AgentError
from redbox.agents.pool import AgentPool
from redbox.core.clock import Clock, finishes_within
from redbox.core.domain import Caller, Owner, Role, UnixUser
from redbox.core.token_buckets import Rate
from redbox.jobs.errors import JournalError
from redbox.jobs.owner_limit import OwnerLimit
from redbox.jobs.store.volume_rows import VolumeRecord
from redbox.observability.job_audit import Audit, AuditEntry
from redbox.volumes.errors import (
    TooManyVolumes,
    VolumeConflict,
    VolumeForbidden,
    VolumeNotFound,
    VolumesError,
    VolumeUnavailable,
)
from redbox.volumes.folders import folder_name, make_folder, remove_folder, user_directory
from redbox.volumes.settings import VolumesSettings
from redbox.volumes.volume_index import VolumeIndex
from redbox_api.models import OwnerRef, VolumeFolder, VolumeRequest
from redbox_shared.keyed_semaphores import KeyedSemaphores

log = structlog.get_logger(__name__)
ANSWER_WITHIN_S = 25.0
REMOVALS_OF_A_USER = 4
"""At once: an agent refuses all requests beyond 64, those for the logs and pods of its user among them."""
PUTS = Rate(5.0, 100.0)  # per caller
MAKE, DELETE = "make-volume", "delete-volume"


class VolumeService:
    """The folders of one Slurm cluster's volumes."""

    def __init__(
        self, index: VolumeIndex, pool: AgentPool, settings: VolumesSettings, *, clock: Clock, audit: Audit
    ) -> None:
        self._index = index
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._audit = audit
        self._limit = OwnerLimit("volumes", PUTS)
        self._turns = KeyedSemaphores[str](1)
        """One change of a handle at a time."""
        self._slots = KeyedSemaphores[int](REMOVALS_OF_A_USER)
        """Of each user's removals, by uid."""
        self._unrecorded: Counter[int] = Counter()
        self._removals: dict[str, asyncio.Task[VolumeRecord | Exception]] = {}

    async def __aenter__(self) -> Self:
        await self._index.forget_deleted(self._clock.now())
        return self

    async def __aexit__(self, *_: object) -> None:
        """A deletion that is cut off goes on with the next DELETE of its handle."""
        removals = tuple(self._removals.values())
        for removal in removals:
            removal.cancel()
        await asyncio.gather(*removals, return_exceptions=True)

    @property
    def count(self) -> int:
        return self._index.count

    async def put(self, caller: Caller, handle: str, request: VolumeRequest) -> tuple[VolumeFolder, bool]:
        """The folder of this handle, made if it does not exist; whether it was made."""
        user = caller.user
        if user is None or not caller.may(Role.SUBMIT):
            raise VolumeForbidden(
                f"{caller.identity} may not make volumes here: its mapping rule lacks the role submit."
            )
        self._limit.charge(caller.owner, self._clock.monotonic())
        async with self._next_turn(handle):
            before = self._index.get(handle)
            try:
                record = await self._make(caller.owner, user, before, handle, request)
            except (VolumesError, AgentError, JournalError) as error:
                self._record(
                    caller, MAKE, f"{caller.owner}/volumes/{handle}", type(error).__name__, str(error)
                )
                raise
        created = before is None or before.inode is None
        self._record(caller, MAKE, str(record), "done" if created else "same", record.path)
        return _view(record), created

    def get(self, caller: Caller, handle: str) -> VolumeFolder:
        record = self._index.get(handle)
        seen_by = (Role.VOLUMES, Role.OPERATOR)
        if record is None or not (_is_owner(caller, record) or _may_in_cluster(caller, record, *seen_by)):
            raise VolumeNotFound
        return _view(record)

    async def delete(self, caller: Caller, handle: str) -> VolumeFolder:
        """Delete the folder with all that is in it; deleted before: the same answer."""
        record = self._index.get(handle)
        if record is None or not (_is_owner(caller, record) or _may_in_cluster(caller, record, Role.VOLUMES)):
            refusal = _refusal(caller, record)
            self._record(caller, DELETE, handle, type(refusal).__name__)
            raise refusal
        if record.deleted_at is not None:
            return _view(record)
        removal = self._removals.get(handle) or self._begin_removal(caller, handle)
        if not await finishes_within(self._clock, ANSWER_WITHIN_S, removal):
            raise VolumeUnavailable(
                f"The deletion of {record.path} takes long and goes on. Retry.", retry_after=10
            )
        outcome = removal.result()
        if isinstance(outcome, Exception):
            raise outcome
        return _view(outcome)

    # ------------------------------------------------------------------------------------------ making

    async def _make(
        self, owner: Owner, user: UnixUser, before: VolumeRecord | None, handle: str, request: VolumeRequest
    ) -> VolumeRecord:
        if before is not None:
            _refuse_unless_same(before, owner, user)
            agent = await self._pool.agent(user, "files")
        else:
            with self._room_for_one(user):
                agent = await self._pool.agent(user, "files")
                directory = user_directory(self._settings.directory, user, agent.hello.home)
                path = f"{directory}/{folder_name(owner, request.claim, handle)}"
                before = VolumeRecord(handle, owner, user, request.claim, path, self._clock.now())
                await self._index.save(before)
        inode = await make_folder(agent, before, group_shared=request.group_shared)
        record = replace(before, inode=inode)
        if record != before:
            await self._index.save(record)
        return record

    @contextmanager
    def _room_for_one(self, user: UnixUser) -> Iterator[None]:
        """Room within the user's limit, together with the others that are not recorded yet."""
        if self._index.count_of(user.uid) + self._unrecorded[user.uid] >= self._settings.per_user:
            raise TooManyVolumes(
                f"{user.name} has {self._settings.per_user} volumes, the most that volumes.per_user of "
                "red-box's settings allows: delete some.",
                retry_after=60,
            )
        self._unrecorded[user.uid] += 1
        try:
            yield
        finally:
            self._unrecorded[user.uid] -= 1
            if not self._unrecorded[user.uid]:
                del self._unrecorded[user.uid]

    @asynccontextmanager
    async def _next_turn(self, handle: str) -> AsyncIterator[None]:
        """Wait no longer than an answer may take: a change hangs as long as its user's disk or agent does."""
        turn = self._turns.of(handle)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await turn.acquire()
        except TimeoutError:
            detail = f"Another request for the volume {handle} takes long. Retry."
            raise VolumeUnavailable(detail, retry_after=10) from None
        try:
            yield
        finally:
            turn.release()

    # ------------------------------------------------------------------------------------------ deleting

    def _begin_removal(self, caller: Caller, handle: str) -> asyncio.Task[VolumeRecord | Exception]:
        task = asyncio.create_task(self._remove(caller, handle))
        self._removals[handle] = task
        task.add_done_callback(lambda _: self._removals.pop(handle, None))
        return task

    async def _remove(self, caller: Caller, handle: str) -> VolumeRecord | Exception:
        """The outcome as a value: several callers may wait for it, or none."""
        async with self._turns.of(handle):
            record = self._index.get(handle)
            if record is None or record.deleted_at is not None:
                return record or VolumeNotFound()
            try:
                async with self._slots.of(record.user.uid):
                    await remove_folder(await self._pool.agent(record.user, "files"), record)
                record = replace(record, deleted_at=self._clock.now())
                await self._index.save(record)
            except (VolumesError, AgentError, JournalError) as error:
                self._record(caller, DELETE, str(record), type(error).__name__, str(error))
                return error
            except Exception as error:
                log.exception("defect", volume=handle)
                return error
        self._record(caller, DELETE, str(record), "done", record.path)
        return record

    def _record(self, caller: Caller, act: str, name: str, outcome: str, detail: str = "") -> None:
        user = caller.user.name if caller.user else None
        self._audit(AuditEntry(caller.identity, user, act, name, outcome, detail=detail))


def _is_owner(caller: Caller, record: VolumeRecord) -> bool:
    """Whether it is this caller's, who still maps to the folder's Unix user."""
    same_user = caller.user is not None and caller.user.uid == record.user.uid
    return caller.may(Role.SUBMIT) and same_user and caller.owner == record.owner


def _may_in_cluster(caller: Caller, record: VolumeRecord, *roles: Role) -> bool:
    return caller.owner.cluster == record.owner.cluster and any(map(caller.may, roles))


def _refusal(caller: Caller, record: VolumeRecord | None) -> VolumesError:
    """An operator, who may see the volume, is shown which role is missing."""
    if record is not None and _may_in_cluster(caller, record, Role.OPERATOR):
        return VolumeForbidden(
            f"{caller.identity} may not delete volumes of others: its mapping rule lacks the role volumes."
        )
    return VolumeNotFound()


def _refuse_unless_same(record: VolumeRecord, owner: Owner, user: UnixUser) -> None:
    if record.owner != owner:
        raise VolumeConflict(f"The handle {record.handle} belongs to another owner.")
    if record.user.uid != user.uid:
        raise VolumeConflict(
            f"The volume {record.handle} belongs to another Unix user ({record.user.name}) from before your "
            "mapping changed. Make a new one."
        )
    if record.deleted_at is not None:
        raise VolumeConflict(f"The volume {record.handle} was deleted: it stays deleted.")


def _view(record: VolumeRecord) -> VolumeFolder:
    owner = record.owner
    return VolumeFolder(
        handle=record.handle,
        owner=OwnerRef(cluster=owner.cluster, namespace=owner.namespace, account=owner.account),
        user=record.user.name,
        claim=record.claim,
        path=record.path,
        made=record.inode is not None,
        deleted_at=record.deleted_at,
    )
