"""Pods are known as long as their virtual node exists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redbox_clusters.names import LABEL_VIRTUAL
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_resourced.pods.informer import PodInformer
from tests.kube.fakes import FakeApiServer

NODE, OTHER_NODE = ResourcePath(kinds.NODE, "hpc1.debug"), ResourcePath(kinds.NODE, "hpc1.gpu")
VIRTUAL: Object = {
    "metadata": {"labels": {LABEL_VIRTUAL: "true"}},
    "spec": {"providerID": "redbox://hpc1/debug"},
}
POD: Object = {
    "metadata": {"creationTimestamp": "2026-11-21T13:00:00Z"},
    "spec": {"nodeName": NODE.name, "containers": [{"name": "companion"}]},
}


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (nothing sets an event)
            await asyncio.sleep(0)


async def test_pods_come_and_go_with_their_node() -> None:
    api = FakeApiServer()
    api.put(ResourcePath(kinds.POD, "a", "alice"), POD)
    gone: list[str] = []
    pods = PodInformer(api.client, lambda _: None, lambda pod: gone.append(pod.name))
    running = asyncio.create_task(pods.run())
    await until(lambda: pods.synced)
    assert pods.pods == {}
    api.put(NODE, VIRTUAL)
    await until(lambda: set(pods.pods) == {("alice", "a")})
    await api.delete(NODE)
    await until(lambda: gone == ["a"])
    assert pods.pods == {}
    api.put(NODE, VIRTUAL)
    api.put(ResourcePath(kinds.POD, "b", "alice"), POD)
    await until(lambda: set(pods.pods) == {("alice", "a"), ("alice", "b")})
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize("is_seen_ending", [False, True])
async def test_a_pod_that_was_made_again_on_another_node_is_not_forgotten_with_the_one_before(
    *, is_seen_ending: bool
) -> None:
    """The watch of the new pod's node may be ahead of that of the old one's, which has its end only then."""
    api = FakeApiServer()
    api.put(NODE, VIRTUAL)
    api.put(OTHER_NODE, VIRTUAL)
    where = ResourcePath(kinds.POD, "web-0", "alice")
    old = api.put(where, POD | {"spec": POD["spec"] | {"nodeName": OTHER_NODE.name}})
    gone: list[str] = []
    pods = PodInformer(api.client, lambda _: None, lambda pod: gone.append(pod.uid))
    running = asyncio.create_task(pods.run())
    await until(lambda: pods.synced and pods.pods)
    if is_seen_ending:
        api.put(where, old | {"metadata": old["metadata"] | {"deletionTimestamp": "2026-11-21T13:01:00Z"}})
    api.remove(where)
    new = api.put(where, POD | {"metadata": {"creationTimestamp": "2026-11-21T13:00:30Z"}})
    await until(lambda: not pods.on(OTHER_NODE.name))
    assert pods.pods[where.namespace, where.name].uid == new["metadata"]["uid"]
    assert gone == [old["metadata"]["uid"]]
    running.cancel()
    await asyncio.wait({running})
