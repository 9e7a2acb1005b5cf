"""Writes to the nodes of a NodeSet's workers in Slurm, and to the records of nodes without a pod.

Each is decided again over a live read: an administrator may have drained the node meanwhile, and a job may
have begun on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from redbox_hosting.controllers.workers.acts.for_each import Answers, for_each
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.nodeset.wanted import NodeAct, NodeVerb
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import BadNodeState, SlurmRefusal

Due = tuple[WorkerView, NodeAct]


@dataclass
class NodeWrites:
    """Which drains Slurm has confirmed, by the uids of pods. After a restart each is asked for again."""

    _confirmed: dict[str, float] = field(default_factory=dict)

    def confirmed(self, uid: str) -> float | None:
        """When slurmrestd answered a DRAIN of this pod's node, and none was lifted since."""
        return self._confirmed.get(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._confirmed.pop(uid, None)

    async def write(
        self,
        client: SlurmrestdClient,
        workers: Iterable[WorkerView],
        acts: Mapping[str, NodeAct],
        check: Callable[[], None],
    ) -> Answers[Due, None]:
        """`check` raises when this process may write no more."""

        async def write(due: Due) -> None:
            check()
            await self._write(client, *due)

        due = [(view, acts[view.pod.name]) for view in workers if view.pod.name in acts]
        return await for_each([(view, act) for view, act in due if act.verb is not None], write)

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


@dataclass
class NodeRecords:
    """Records of nodes whose pods are gone."""

    _refused: set[tuple[str, str]] = field(default_factory=set)
    """By the uids of NodeSets, and names."""

    def is_refused(self, owner: str, name: str) -> bool:
        """Whether Slurm keeps it although it was asked: nobody waits for its end."""
        return (owner, name) in self._refused

    async def delete(
        self, client: SlurmrestdClient, owner: str, nodes: Iterable[str], check: Callable[[], None]
    ) -> Answers[str, None]:
        async def delete(name: str) -> None:
            check()
            try:
                await client.delete_node(name)
            except SlurmRefusal:
                self._refused.add((owner, name))
                raise
            self._refused.discard((owner, name))

        return await for_each(nodes, delete)
