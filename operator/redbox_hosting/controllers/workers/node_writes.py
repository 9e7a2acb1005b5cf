"""Writes to the nodes of a NodeSet's workers in Slurm. One that fails stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.nodeset.wanted import NodeAct, NodeVerb
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import BadNodeState, SlurmrestdError, SlurmUnknown

IN_PARALLEL = 8


@dataclass
class NodeWrites:
    """Which drains Slurm has confirmed, by the uids of pods. After a restart each is asked for again."""

    _confirmed: dict[str, float] = field(default_factory=dict)

    def confirmed(self, uid: str) -> float | None:
        """When slurmrestd answered a DRAIN of this pod's node, and none was lifted since."""
        return self._confirmed.get(uid)

    def forget_all_but(self, before: Iterable[str], uids: Iterable[str]) -> None:
        """Pods that are gone."""
        for uid in set(before) - set(uids):
            self._confirmed.pop(uid, None)

    async def write(
        self, client: SlurmrestdClient, workers: Iterable[WorkerView], acts: Mapping[str, NodeAct]
    ) -> tuple[list[str], list[str]]:
        """What was done, and what failed."""
        slots = asyncio.Semaphore(IN_PARALLEL)
        done: list[str] = []
        failed: list[str] = []

        async def write(view: WorkerView, act: NodeAct) -> None:
            async with slots:
                try:
                    await self._write(client, view, act)
                except SlurmrestdError as error:
                    failed.append(str(error))
                else:
                    done.append(f"{act.verb} {view.pod.name}")

        due = [(view, acts[view.pod.name]) for view in workers if view.pod.name in acts]
        await asyncio.gather(*(write(view, act) for view, act in due if act.verb is not None))
        return sorted(done), sorted(failed)

    async def _write(self, client: SlurmrestdClient, view: WorkerView, act: NodeAct) -> None:
        name, uid = view.pod.name, view.pod.uid
        if act.verb is NodeVerb.DRAIN:
            await client.drain(name, act.reason)
            self._confirmed[uid] = monotonic()
        elif act.verb is NodeVerb.DOWN:
            await client.down(name, act.reason)
        elif act.verb is NodeVerb.RESUME:
            self._confirmed.pop(uid, None)
            try:
                await client.resume(name)
            except BadNodeState:
                return  # nothing to resume


async def delete_records(client: SlurmrestdClient, nodes: Iterable[str]) -> tuple[list[str], list[str]]:
    """Those that are gone, and those whose deletion failed."""
    done, failed = [], []
    for name in nodes:
        try:
            await client.delete_node(name)
        except SlurmUnknown as error:
            failed.append(str(error))
            break  # Slurm does not answer: the others would take as long
        except SlurmrestdError as error:
            failed.append(str(error))
        else:
            done.append(name)
    return done, failed
