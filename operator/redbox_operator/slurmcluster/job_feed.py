"""The jobs of one red-box: one watch each, and the newest row of every job that is not final.

A row counts for a SlurmJob only if its owner is that SlurmJob's namespace and service account: anybody can
choose keys. Only jobs that are not final are listed, because red-box remembers ended jobs for weeks; a job
whose end was missed is requested by itself. While red-box is unavailable it gets only the feed's own retries;
its return wakes the SlurmJobs that wait for it.

A user of a SlurmEndpoint's namespace chooses what answers there. So only rows of SlurmJobs of that namespace
are kept, and these in a bounded number and size (`link_limits`).
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from typing import TypeVar

import structlog

from redbox_api.client import RedboxClient
from redbox_api.errors import Busy, NoSuchJob, Unreachable
from redbox_api.feed import Feed, RowKey, list_active_jobs
from redbox_api.models import FINAL_PHASES, Cluster, Job, OwnerRef, Phase, WatchEvent
from redbox_api.requests.sender import Deadlines
from redbox_clusters.redbox_token import RedboxToken, ServiceAccountName
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_kube.api.objects import ApiError, ObjectClient
from redbox_kube.runtime.paces import Pace, PacedCalls
from redbox_operator.slurmcluster.endpoint_addresses import EndpointAddresses
from redbox_operator.slurmcluster.link_limits import limits_of, memory_of, share_of
from redbox_operator.slurmcluster.partition_watch import PartitionWatch
from redbox_operator.slurmcluster.status_lag import StatusLag
from redbox_shared.backoff import Backoff
from redbox_shared.printable import printable

log = structlog.get_logger(__name__)
DEADLINES = Deadlines(connect=3.0, answer=10.0, quiet=30.0)
CALL_S = 15.0
LONGEST_TROUBLE = 500
LONGEST_BOOKMARK = 100
BACKOFF = Backoff(0.5, 3.0, factor=1.5)  # short: SlurmJobs wait for its return
MODELS = 500
LARGEST_MODEL = 8 * 1024
"""As JSON: a red-box of a user could fill the operator's memory by 500 of more."""
OWN_CALLS = ""
"""In place of a namespace: what the operator asks for itself."""
NO_ANSWER = "red-box did not answer in time"
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Row:
    """A job as red-box has it, packed: ten thousand as models would take 50 MiB.

    Without the tasks of an array, of which there may be 50,000: statuses have their counts.
    """

    phase: Phase
    job_id: str | None
    has_digest: bool
    packed: bytes
    size: int
    """Before it was packed."""

    @classmethod
    def of(cls, job: Job) -> Row:
        text = job.model_dump_json(by_alias=True, exclude_defaults=True, exclude={"tasks"}).encode()
        packed = zlib.compress(text, 1)
        return cls(job.phase, job.job_id, job.spec_digest is not None, packed, len(text))

    def unpacked(self) -> Job:
        return _unpacked(self.packed) if self.size > LARGEST_MODEL else _newest(self.packed)


def _unpacked(packed: bytes) -> Job:
    return Job.model_validate_json(zlib.decompress(packed))


_newest = lru_cache(MODELS)(_unpacked)
"""A row is looked at several times before the next one comes; what it returns is changed by none."""


class RedboxUnavailable(Exception):
    """Red-box cannot be called now. `until_return`: its return wakes all that wait; else it is only busy.

    `after_s` is the pause that red-box asks for.
    """

    def __init__(self, why: str, *, until_return: bool = True, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.until_return = until_return
        self.after_s = after_s


class RedboxLink:
    """One SlurmCluster's red-box: its rows, kept current while it runs, and bounded calls."""

    def __init__(
        self,
        cluster: SlurmCluster,
        client: RedboxClient,
        *,
        changed: Callable[[str], None],
        turned: Callable[[RedboxLink], None],
        namespace_of: Callable[[str], str | None],
        partitions_changed: Callable[[str], None],
        lag: StatusLag,
    ) -> None:
        """`changed` is called with the key of each row that changes, `turned` when `reachable` changes.

        `namespace_of` returns the namespace of the SlurmJob with this key as its uid, if there is one.
        `partitions_changed` is called with the key of the SlurmCluster or SlurmEndpoint. `lag` is one for
        all links to this red-box, one after the other.
        """
        self.cluster = cluster
        self.client = client
        self.lag = lag
        self.rows: dict[RowKey, Row] = {}
        self.synced = False  # the rows were complete once, so that a job without a row is not active
        self.reachable: bool | None = None
        self.trouble = "no answer yet"
        self.bookmark_message: str | None = None  # of the last bookmark: Slurm does not answer, for instance
        self.partition_watch = PartitionWatch(cluster.key, client, lambda: partitions_changed(cluster.key))
        self._changed = changed
        self._limits = limits = limits_of(cluster)
        if limits.changes and limits.changes_of_a_job:
            self._changed = PacedCalls(changed, Pace(*limits.changes_of_a_job), Pace(*limits.changes))
        self._turned = turned
        self._namespace_of = namespace_of
        self._absent: set[RowKey] = set()
        self._bytes = 0  # of all rows
        self._calls: Counter[str] = Counter()  # by namespace
        self._feed: Feed[WatchEvent] = Feed(
            self._list,
            client.watch_jobs,
            self._on_event,
            self._turn,
            backoff=BACKOFF,
            retry_on=(ApiError,),
            share=client.share,
        )

    async def run(self) -> None:
        """Follow red-box's jobs and partitions until cancelled."""
        async with self.client, asyncio.TaskGroup() as group:
            group.create_task(self.partition_watch.run())
            await self._feed.run()

    # -- rows

    def row(self, key: RowKey) -> Job | None:
        row = self.rows.get(key)
        return row.unpacked() if row else None

    def forget(self, key: RowKey) -> None:
        """Drop the row of a job that needs no more attention."""
        self._drop(key)
        self.lag.end(key)
        self._absent.discard(key)

    def presume_absent(self, key: RowKey) -> None:
        """Record that no job can have this key before now; the watch shows it if that changes."""
        if key not in self.rows:
            self._absent.add(key)

    def active_rows(self) -> Iterator[tuple[RowKey, Row]]:
        """Rows of jobs that have not ended."""
        return ((key, row) for key, row in self.rows.items() if row.phase not in FINAL_PHASES)

    # -- calls

    async def find(self, key: RowKey) -> Job | None:
        """The row, requested if neither list nor watch contained it. None: red-box has no such job."""
        if key in self.rows or key in self._absent:
            return self.row(key)
        try:
            job = await self._call(
                key.namespace,
                lambda: self.client.get_job(key.key, attempt=key.attempt, owner=_owner(key), tasks=False),
            )
        except NoSuchJob:
            self._absent.add(key)
            return None
        if RowKey.of(job) != key:
            raise RedboxUnavailable("its answer is about another owner's job", until_return=False)
        if key not in self.rows:
            row_found = Row.of(job)
            if not self._may_have(key, row_found):
                raise RedboxUnavailable("the job's row is larger than is kept", until_return=False)
            self._store(key, row_found)
        return self.row(key)

    async def cancel(self, key: RowKey, *, all_attempts: bool) -> list[Job]:
        """Cancel one attempt, or all and those that may still come. Raises NoSuchJob where there was none."""
        return await self._call(
            key.namespace,
            lambda: self.client.cancel_job(
                key.key, attempt=key.attempt, all_attempts=all_attempts, owner=_owner(key)
            ),
        )

    async def describe(self) -> Cluster:
        """Versions and nodes."""
        return await self._call_slurm(OWN_CALLS, self.client.cluster)

    async def own_roles(self) -> list[str]:
        """What red-box permits the operator."""
        return (await self._call_slurm(OWN_CALLS, self.client.whoami)).roles

    async def act(self, key: RowKey, act: str, *, run: int | None = None, task: int | None = None) -> Job:
        """Hold or release a pending job, requeue this run of a running one, or cancel a task of an array."""
        return await self._call_slurm(
            key.namespace,
            lambda: self.client.act_on_job(
                key.key, act, attempt=key.attempt, run=run, task=task, owner=_owner(key)
            ),
        )

    async def _call_slurm(self, namespace: str, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """A call that red-box answers only after Slurm has: if it is late, red-box may well be reachable."""
        try:
            return await self._bounded(namespace, call)
        except (Unreachable, TimeoutError) as error:
            raise RedboxUnavailable(str(error) or NO_ANSWER, until_return=False) from error

    async def _call(self, namespace: str, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """A call that red-box answers by itself: no answer shows that it is unreachable."""
        try:
            return await self._bounded(namespace, call)
        except (Unreachable, TimeoutError) as error:
            self._turn(str(error) or NO_ANSWER)
            self._feed.restart()
            raise RedboxUnavailable(self.trouble) from error

    async def _bounded(self, namespace: str, call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        """Bound time and number of calls: a red-box that hangs must not block work for other clusters.

        A namespace has a share of them: its users can make each of their calls last.
        """
        if self.reachable is False:
            raise RedboxUnavailable(self.trouble)
        if self._calls[namespace] >= self._limits.calls_of_a_namespace:
            raise RedboxUnavailable("too many calls of its namespace are in progress", until_return=False)
        if self._calls.total() >= self._limits.calls:
            raise RedboxUnavailable("too many calls are in progress", until_return=False)
        self._calls[namespace] += 1
        try:
            async with asyncio.timeout(CALL_S):
                return await call()
        except Busy as busy:
            if busy.problem.status != HTTPStatus.TOO_MANY_REQUESTS:
                raise
            raise RedboxUnavailable(str(busy), until_return=False, after_s=busy.retry_after or 0.0) from busy
        finally:
            self._calls -= Counter((namespace,))  # keeps no namespace without calls

    # -- the feed

    async def _list(self) -> str:
        listed: set[RowKey] = set()
        count = 0

        def take(job: Job) -> None:
            nonlocal count
            count += 1
            if count > self._limits.listed:
                raise Unreachable(f"it lists more than {self._limits.listed} jobs that have not ended")
            self._take(job, gone=False)
            if (key := RowKey.of(job)) in self.rows:
                listed.add(key)

        revision = await list_active_jobs(self.client, take, page_items=self._limits.page_items)
        self._absent.clear()
        for key in [key for key, _ in self.active_rows() if key not in listed]:
            self._drop(key)  # it has ended or is unknown: requested when its SlurmJob is reconciled
            self._changed(key.key)
        self.synced = True
        self._turn(None)
        return revision

    def _on_event(self, event: WatchEvent) -> None:
        self._turn(None)
        if event.type == "bookmark":
            self.bookmark_message = (event.message or "")[:LONGEST_BOOKMARK]
        elif event.job is not None:
            self._take(event.job, gone=event.type == "gone")

    def _take(self, job: Job, *, gone: bool) -> None:
        key = RowKey.of(job)
        if not self._is_known(key):
            return
        row = Row.of(job)
        if not self._may_have(key, row):
            return
        self._absent.discard(key)
        if gone:
            self._drop(key)
        elif self.rows.get(key) == row:
            return
        else:
            self._store(key, row)
        self._changed(job.key)

    def _is_known(self, key: RowKey) -> bool:
        """Whether a SlurmJob of its namespace has the key; of a SlurmCluster all rows are kept."""
        namespace = self.cluster.namespace
        return not namespace or key.namespace == namespace == self._namespace_of(key.key)

    def _may_have(self, key: RowKey, row: Row) -> bool:
        limits, before = self._limits, self.rows.get(key)
        return (
            self._is_known(key)
            and row.size <= limits.row_bytes
            and self._bytes + row.size - (before.size if before else 0) <= limits.bytes
            and (before is not None or len(self.rows) < limits.rows)
        )

    def _store(self, key: RowKey, row: Row) -> None:
        self._drop(key)
        self.rows[key] = row
        self._bytes += row.size
        self.lag.begin(key)

    def _drop(self, key: RowKey) -> None:
        before = self.rows.pop(key, None)
        if before is not None:
            self._bytes -= before.size

    def _turn(self, trouble: str | None) -> None:
        reachable = trouble is None
        changed = self.reachable is not reachable
        self.reachable, self.trouble = reachable, printable((trouble or "")[:LONGEST_TROUBLE])
        if changed:
            log.info("redbox", cluster=self.cluster.key, reachable=reachable, trouble=self.trouble)
            self._turned(self)


def link_to(
    cluster: SlurmCluster,
    objects: ObjectClient,
    account: ServiceAccountName,
    *,
    changed: Callable[[str], None],
    turned: Callable[[RedboxLink], None],
    namespace_of: Callable[[str], str | None],
    partitions_changed: Callable[[str], None],
    addresses: EndpointAddresses,
    lag: StatusLag,
) -> RedboxLink:
    """The link to the red-box of a SlurmCluster or SlurmEndpoint, with tokens for that red-box alone."""
    spec = cluster.spec
    token = RedboxToken(objects, account, spec.audience)
    client = RedboxClient(
        spec.endpoint,
        token=token,
        ca_bundle=spec.ca_bundle,
        deadlines=DEADLINES,
        limits=limits_of(cluster).answer,
        share=share_of(cluster),
        memory=memory_of(cluster),
        refuses=addresses.refusal if cluster.namespace else None,
    )
    return RedboxLink(
        cluster,
        client,
        changed=changed,
        turned=turned,
        namespace_of=namespace_of,
        partitions_changed=partitions_changed,
        lag=lag,
    )


def stale_since(bookmark_message: str | None) -> datetime | None:
    """Since when Slurm does not answer, from a bookmark's message."""
    text = (bookmark_message or "").removeprefix("stale since ")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _owner(key: RowKey) -> OwnerRef:
    return OwnerRef(cluster="", namespace=key.namespace, account=key.account)
