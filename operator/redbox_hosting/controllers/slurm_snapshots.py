"""The newest snapshot of each cluster's Slurm: read once for all who look at it, and never waited for.

A Slurm that hangs stops nobody: it is read beside the reconciliations, and until it answers its snapshot is
unknown. It is read every second while something changes, every 5 seconds while something is awaited, such
as the end of a job on a worker that is to go, when the supervisor in slurmctld's pod tells of a change, and
otherwise three times a minute. A slow one has a pause after each reading that is as long as the reading took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from time import monotonic

import structlog

from redbox_hosting.controllers.slurm_connections import SlurmConnections
from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.errors import SlurmrestdError, SlurmUnknown
from redbox_hosting.slurm.old_reasons import OldReasons
from redbox_hosting.slurm.snapshot import SlurmSnapshot, read_snapshot
from redbox_hosting.slurm.supervisor_feed import next_tag
from redbox_kube.api.informer import Place

log = structlog.get_logger(__name__)
IDLE_S, AWAITED_S, CHANGING_S = 20.0, 5.0, 1.0
CHANGING_FOR_S = 60.0
UNREAD = SlurmSnapshot(float("-inf"), unknown="it has not been read yet")

LASTING = attrgetter(*(field for field in RestNode.model_fields if field != "boot_time"))


@dataclass
class _Cluster:
    """A cluster that somebody looks at."""

    newest: SlurmSnapshot = UNREAD
    essence: tuple[object, ...] = ()
    changed_at: float = field(default_factory=monotonic)
    awaited_by: dict[str, bool] = field(default_factory=dict)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    old_reasons: OldReasons = field(default_factory=OldReasons)

    def pause_s(self) -> float:
        if not any(self.awaited_by.values()):
            return IDLE_S
        return CHANGING_S if monotonic() - self.changed_at < CHANGING_FOR_S else AWAITED_S


class SlurmSnapshots:
    """By the place of the Controller; `run` it beside the controllers."""

    def __init__(self, connections: SlurmConnections) -> None:
        self._connections = connections
        self._clusters: dict[Place, _Cluster] = {}
        self._new: asyncio.Queue[Place] = asyncio.Queue()
        self._followers: list[Callable[[Place], None]] = []
        connections.follow(self.hurry)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._keep_reading(await self._new.get()))

    def follow(self, notify: Callable[[Place], None]) -> None:
        """`notify` is called with a Controller's place after each change, and each read that was awaited."""
        self._followers.append(notify)

    def of(self, place: Place) -> SlurmSnapshot:
        """The newest one, without waiting."""
        cluster = self._clusters.get(place)
        return cluster.newest if cluster else UNREAD

    def look_at(self, place: Place, who: str, *, awaits: bool) -> None:
        """Keep it read for this NodeSet, often if that awaits a change."""
        cluster = self._clusters.get(place)
        if cluster is None:
            cluster = self._clusters[place] = _Cluster()
            self._new.put_nowait(place)
        if awaits and not any(cluster.awaited_by.values()):
            cluster.changed_at = monotonic()
            cluster.hurry.set()
        cluster.awaited_by[who] = awaits

    def look_away(self, place: Place, who: str) -> None:
        cluster = self._clusters.get(place)
        if cluster is not None:
            cluster.awaited_by.pop(who, None)
            cluster.hurry.set()

    def hurry(self, place: Place) -> None:
        """Read it now: something was written to it, or it has something new."""
        if cluster := self._clusters.get(place):
            cluster.changed_at = monotonic()
            cluster.hurry.set()

    async def read(self, place: Place) -> SlurmSnapshot:
        """A live one."""
        cluster = self._clusters.get(place)
        snapshot = await self._read(place, cluster.old_reasons if cluster else OldReasons())
        if cluster := self._clusters.get(place):
            self._keep(place, cluster, snapshot)
        return snapshot

    async def _read(self, place: Place, old_reasons: OldReasons) -> SlurmSnapshot:
        taken_at = monotonic()
        try:
            return await read_snapshot(self._connections.slurm_of(*place), taken_at, old_reasons)
        except SlurmrestdError as error:
            return SlurmSnapshot(taken_at, unknown=str(error))
        except Exception as error:
            log.exception("defect", cluster="/".join(place))
            return SlurmSnapshot(taken_at, unknown=f"a defect, see the log: {error!r}")

    async def _keep_reading(self, place: Place) -> None:
        """As long as somebody looks at it."""
        async with asyncio.TaskGroup() as group:
            feed = group.create_task(self._follow_supervisor(place))
            await self._read_again(place)
            feed.cancel()

    async def _follow_supervisor(self, place: Place) -> None:
        """One that tells of changes all the time is followed once a second."""
        supervisor, tag = None, ""
        while True:
            before, supervisor = supervisor, self._connections.supervisor_of(place)
            tag = tag if supervisor == before else ""
            if supervisor is None:
                await asyncio.sleep(AWAITED_S)
                continue
            try:
                newest = await next_tag(supervisor, tag)
            except SlurmUnknown:
                await asyncio.sleep(AWAITED_S)
                continue
            except Exception:
                log.exception("defect", cluster="/".join(place))
                await asyncio.sleep(IDLE_S)
                continue
            if tag and newest != tag:
                self.hurry(place)
                await asyncio.sleep(CHANGING_S)
            tag = newest

    async def _read_again(self, place: Place) -> None:
        cluster = self._clusters[place]
        while True:
            began = monotonic()
            await self.read(place)
            if not cluster.awaited_by:
                del self._clusters[place]
                return
            await asyncio.sleep(monotonic() - began)
            try:
                async with asyncio.timeout(cluster.pause_s()):
                    await cluster.hurry.wait()
            except TimeoutError:
                continue
            finally:
                cluster.hurry.clear()

    def _keep(self, place: Place, cluster: _Cluster, snapshot: SlurmSnapshot) -> None:
        if snapshot.taken_at < cluster.newest.taken_at:
            return  # another read was faster
        before = cluster.essence
        cluster.newest, cluster.essence = snapshot, _essence(snapshot)
        has_changed = before != cluster.essence
        if has_changed:
            cluster.changed_at = monotonic()
        if has_changed or any(cluster.awaited_by.values()):
            for notify in self._followers:
                notify(place)


def _essence(snapshot: SlurmSnapshot) -> tuple[object, ...]:
    """Without times of the reading: slurmctld's boot times move by a second from one answer to the next."""
    nodes = {name: LASTING(node) for name, node in snapshot.nodes.items()}
    return nodes, snapshot.jobs, snapshot.reservations, snapshot.unknown
