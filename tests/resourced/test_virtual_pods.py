"""What one look at a pod cannot say now is said later, and ends nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar, cast

from redbox_kube.objects import ApiUnreachable, Object, Objects, Where
from redbox_resourced.bound_pods import BoundPod
from redbox_resourced.clusters import Clusters, ServedNode
from redbox_resourced.endings import Refusal
from redbox_resourced.submission import Never
from redbox_resourced.virtual_pods import VirtualPods

NODE: Object = {"metadata": {"name": "hpc1.debug"}, "spec": {"providerID": "redbox://hpc1/debug"}}
OWNER = {
    "apiVersion": "redbox.dev/v1alpha1",
    "kind": "SlurmJob",
    "name": "cow",
    "uid": "u",
    "controller": True,
}
POD: Object = {
    "metadata": {
        "namespace": "alice",
        "name": "cow-job",
        "uid": "u",
        "creationTimestamp": "2026-11-21T13:00:00Z",
        "ownerReferences": [OWNER],
    },
    "spec": {"nodeName": "hpc1.debug", "containers": [{"name": "companion", "image": "i"}]},
}


class ApiServer:
    """One node with one pod; away at the first write."""

    def __init__(self) -> None:
        self.writes = 0
        self.written: asyncio.Future[Object] = asyncio.get_running_loop().create_future()

    async def pages(self, where: Where, *_: Any) -> AsyncIterator[tuple[list[Object], str]]:
        yield [NODE if where.kind == "Node" else POD], "1"

    async def watch(self, *_: Any) -> AsyncIterator[Object]:
        await asyncio.Event().wait()
        yield {}

    async def apply(self, _: Where, body: Object, **__: Any) -> None:
        self.writes += 1
        if self.writes == 1:
            raise ApiUnreachable("the API server does not answer: refused")
        if not self.written.done():
            self.written.set_result(body)


class Known:
    """One SlurmCluster, which serves every node."""

    followed: ClassVar[dict[str, Any]] = {}

    def of_node(self, _: str) -> ServedNode:
        return cast("ServedNode", object())


class AllRefused(VirtualPods):
    """Red-box will never have any of them."""

    asked = 0

    async def _keep_job(self, pod: BoundPod, node: ServedNode) -> float | None:  # noqa: ARG002
        self.asked += 1
        raise Never(Refusal("no mapping for this account"))


async def test_a_refusal_that_cannot_be_written_is_written_later() -> None:
    server = ApiServer()
    pods = AllRefused(cast("Objects", server), cast("Clusters", Known()), cast("Any", None), "10.0.0.7")
    running = asyncio.create_task(pods.run())
    async with asyncio.timeout(30):
        assert "no mapping" in str(await server.written)
        pods.look_at(("alice", "cow-job"))  # its own write comes back
        await asyncio.sleep(0.1)
    assert pods.asked == 1
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
