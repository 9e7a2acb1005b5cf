"""What one red-box says of its jobs: one watch per SlurmCluster, the newest row of every job that matters.

A row counts for a SlurmJob only if its owner is that SlurmJob's namespace and service account: keys can be
chosen by anybody. Only jobs that are not final are listed: red-box remembers ended ones for weeks, and those
whose end was missed are asked for one by one. While red-box is away nothing is asked of it but whether it is
back; who waits for that is woken then.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

import structlog

from redbox_api.client import Deadlines, RedboxClient
from redbox_api.errors import NoSuchJob, RedboxError, TooOld, Unreachable
from redbox_api.models import FINAL_PHASES, Cluster, Job, OwnerRef, Partition, Phase
from redbox_kube.api.objects import ApiError, ObjectClient
from redbox_kube.redbox_token import RedboxToken, ServiceAccountName
from redbox_kube.slurm_cluster import SlurmCluster

log = structlog.get_logger(__name__)
DEADLINES = Deadlines(connect=3.0, answer=10.0, quiet=30.0)
CALL_S = 15.0
MOST_CALLS = 8
ASKS_AGAIN_S = 0.5
LONGEST_PAUSE_S = 3.0  # so that what waits for its return is done soon after
LIVING = tuple(phase.value for phase in Phase if phase not in FINAL_PHASES)
AnswerT = TypeVar("AnswerT")


class RowKey(NamedTuple):
    """One attempt of one owner's job."""

    key: str
    attempt: int
    namespace: str
    account: str


@dataclass(frozen=True, slots=True)
class Row:
    """A job as red-box has it, packed: ten thousand as models would be 50 MiB."""

    phase: Phase
    job_id: str | None
    has_digest: bool
    packed: bytes

    @classmethod
    def of(cls, job: Job) -> Row:
        """The job, packed."""
        text = job.model_dump_json(by_alias=True, exclude_defaults=True)
        return cls(job.phase, job.job_id, job.spec_digest is not None, zlib.compress(text.encode(), 1))

    def unpacked(self) -> Job:
        """To look at it."""
        return Job.model_validate_json(zlib.decompress(self.packed))


class Away(Exception):
    """Red-box cannot be asked now. `until_return`: its return wakes all who wait; else it is only busy."""

    def __init__(self, why: str, *, until_return: bool = True) -> None:
        super().__init__(why)
        self.until_return = until_return


class RedboxLink:
    """One SlurmCluster's red-box: its rows, kept new for as long as it is run."""

    def __init__(
        self,
        cluster: SlurmCluster,
        client: RedboxClient,
        *,
        changed: Callable[[str], None],
        turned: Callable[[RedboxLink], None],
    ) -> None:
        """`changed` hears the key of each row that changes, `turned` that red-box went or came back."""
        self.cluster = cluster
        self.client = client
        self.rows: dict[RowKey, Row] = {}
        self.synced = False  # the rows were complete once, so that what is missing is known to be missing
        self.reachable: bool | None = None
        self.trouble = "it has not been asked yet"
        self.remark: str | None = None  # what its last bookmark said: that Slurm does not answer, say
        self._changed = changed
        self._turned = turned
        self._absent: set[RowKey] = set()
        self._arrived: dict[RowKey, float] = {}
        self._revision: str | None = None
        self._doubted = asyncio.Event()
        self._calls = 0

    async def run(self) -> None:
        """Follow red-box until cancelled."""
        async with self.client:
            await self._run()

    # -- what is known

    def row(self, wanted: RowKey) -> Job | None:
        """The newest that is known of this job."""
        row = self.rows.get(wanted)
        return row.unpacked() if row else None

    def forget(self, done: RowKey) -> None:
        """The row of a job that needs no more attention."""
        self.rows.pop(done, None)
        self._arrived.pop(done, None)
        self._absent.discard(done)

    def presume_absent(self, new: RowKey) -> None:
        """Nobody can have submitted this before now: should somebody, the watch tells."""
        if new not in self.rows:
            self._absent.add(new)

    def lag_of(self, told: RowKey) -> float | None:
        """How long ago the oldest change came that had not been told before now."""
        arrived = self._arrived.pop(told, None)
        return None if arrived is None else asyncio.get_running_loop().time() - arrived

    def living(self) -> Iterator[tuple[RowKey, Row]]:
        """Rows of jobs that have not ended."""
        return ((key, row) for key, row in self.rows.items() if _lives(row))

    # -- what is asked

    async def look(self, wanted: RowKey) -> Job | None:
        """The row, asked for if the list and the watch did not bring it. None: red-box has no such job."""
        known = self.row(wanted)
        if known is not None or wanted in self._absent:
            return known
        owner = _owner(wanted)
        try:
            job = await self._call(
                lambda: self.client.get_job(wanted.key, attempt=wanted.attempt, owner=owner)
            )
        except NoSuchJob:
            self._absent.add(wanted)
            return None
        self.rows.setdefault(wanted, Row.of(job))
        return self.row(wanted)

    async def cancel(self, wanted: RowKey, *, all_attempts: bool) -> list[Job]:
        """Cancel one attempt, or all and those that may still come. Raises NoSuchJob where there was none."""
        return await self._call(
            lambda: self.client.cancel_job(
                wanted.key, attempt=wanted.attempt, all_attempts=all_attempts, owner=_owner(wanted)
            )
        )

    async def describe(self) -> Cluster:
        """Versions and nodes."""
        return await self._call_slurm(self.client.cluster)

    async def partitions(self) -> list[Partition]:
        """All of them."""
        return (await self._call_slurm(self.client.partitions)).items

    async def act(self, wanted: RowKey, act: str) -> Job:
        """Hold or release a job that waits."""
        owner = _owner(wanted)
        return await self._call_slurm(
            lambda: self.client.act_on_job(wanted.key, act, attempt=wanted.attempt, owner=owner)
        )

    async def _call_slurm(self, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """What red-box answers only after Slurm has: that it is late says nothing of red-box."""
        try:
            return await self._bounded(call)
        except (Unreachable, TimeoutError) as error:
            raise Away(str(error) or "it did not answer in time", until_return=False) from error

    async def _call(self, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """What red-box answers by itself: silence means that it is away."""
        try:
            return await self._bounded(call)
        except (Unreachable, TimeoutError) as error:
            self._turn(str(error) or "it did not answer in time")
            self._doubted.set()
            raise Away(self.trouble) from error

    async def _bounded(self, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """In time and number: a red-box that hangs must not keep all who work from other clusters."""
        if self.reachable is False:
            raise Away(self.trouble)
        if self._calls >= MOST_CALLS:
            raise Away("it has enough to do", until_return=False)
        self._calls += 1
        try:
            async with asyncio.timeout(CALL_S):
                return await call()
        finally:
            self._calls -= 1

    # -- following

    async def _run(self) -> None:
        pause = ASKS_AGAIN_S
        while True:
            self._doubted.clear()
            following = asyncio.create_task(self._follow())
            doubted = asyncio.create_task(self._doubted.wait())
            try:
                await asyncio.wait({following, doubted}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (following, doubted):
                    task.cancel()
                await asyncio.wait({following, doubted})
            pause = ASKS_AGAIN_S if self.reachable else min(LONGEST_PAUSE_S, pause * 1.5)
            if not following.cancelled() and (error := following.exception()) is not None:
                if not isinstance(error, (RedboxError, ApiError, TimeoutError)):
                    raise error
                self._turn(str(error) or type(error).__name__)
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        """List where no revision is known, then watch from there to the stream's end."""
        if self._revision is None:
            self._revision = await self._list()
            self._turn(None)
        try:
            async for event in self.client.watch_jobs(self._revision):
                self._turn(None)
                if event.type == "bookmark":
                    self.remark = event.message
                elif event.job is not None:
                    self._take(event.job, gone=event.type == "gone")
                if event.type != "error":
                    self._revision = event.revision
        except TooOld:
            self._revision = None

    async def _list(self) -> str:
        revision, found = "", set()
        async for page in self.client.list_jobs(limit=500, phase=LIVING):
            for job in page.items:
                found.add(_row_key(job))
                self._take(job, gone=False)
            revision = revision or page.revision
        self._absent.clear()
        for missed in [key for key, row in self.rows.items() if key not in found and _lives(row)]:
            del self.rows[missed]  # it has ended, or is unknown now: asked for when its SlurmJob is looked at
            self._changed(missed.key)
        self.synced = True
        return revision

    def _take(self, job: Job, *, gone: bool) -> None:
        place, row = _row_key(job), Row.of(job)
        self._absent.discard(place)
        if gone:
            self.rows.pop(place, None)
        elif self.rows.get(place) == row:
            return
        else:
            self.rows[place] = row
            self._arrived.setdefault(place, asyncio.get_running_loop().time())
        self._changed(job.key)

    def _turn(self, trouble: str | None) -> None:
        reachable = trouble is None
        told = self.reachable is not reachable
        self.reachable, self.trouble = reachable, trouble or ""
        if told:
            log.info("redbox", cluster=self.cluster.name, reachable=reachable, trouble=trouble)
            self._turned(self)


def link_to(
    cluster: SlurmCluster,
    objects: ObjectClient,
    account: ServiceAccountName,
    *,
    changed: Callable[[str], None],
    turned: Callable[[RedboxLink], None],
) -> RedboxLink:
    """The link to a SlurmCluster's red-box, with tokens for that one alone."""
    spec = cluster.spec
    token = RedboxToken(objects, account, spec.audience)
    client = RedboxClient(spec.endpoint, token=token, ca_bundle=spec.ca_bundle, deadlines=DEADLINES)
    return RedboxLink(cluster, client, changed=changed, turned=turned)


def since_of(remark: str | None) -> datetime | None:
    """Since when Slurm does not answer, as a bookmark has it."""
    text = (remark or "").removeprefix("stale since ")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _owner(wanted: RowKey) -> OwnerRef:
    return OwnerRef(cluster="", namespace=wanted.namespace, account=wanted.account)


def _row_key(job: Job) -> RowKey:
    return RowKey(job.key, job.attempt, job.owner.namespace, job.owner.account)


def _lives(row: Row) -> bool:
    return row.phase not in FINAL_PHASES
