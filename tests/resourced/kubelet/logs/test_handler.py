"""Who may read logs at the same time."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from redbox_api.models import Job
from redbox_resourced.kubelet.logs import handler
from redbox_resourced.kubelet.logs.lines import Write
from redbox_resourced.kubelet.turns import Turn
from redbox_resourced.pods.pod_view import BoundPod
from tests.resourced.fakes import JOB, array
from tests.resourced.kubelet.sessions.harness import Stand, kubelet_api
from tests.resourced.pods.factories import running_pod

LOG = "/containerLogs/alice/train/main"


class EndlessLog:
    """Of a container that runs."""

    times = None

    def __init__(self, job: Job = JOB) -> None:
        self.job = job

    async def copy(self, _: object, write: Write) -> None:
        await write(b"a line\n")
        await asyncio.Event().wait()


async def find_endless_log(*given: Any) -> tuple[EndlessLog, Any]:
    return EndlessLog(), given[-1]


async def until_there_is_room(stand: Stand, log: str) -> None:
    async with asyncio.timeout(60):
        while (await stand.request(log, method="GET")).status == 503:  # noqa: ASYNC110 (nothing says it)
            await asyncio.sleep(0.01)


async def test_one_namespace_leaves_readers_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler.LogHandler, "find_log", find_endless_log)
    monkeypatch.setattr(handler, "MOST_READERS", 2)
    monkeypatch.setattr(handler, "OF_A_NAMESPACE", 1)
    async with kubelet_api() as stand:
        stand.serve(dataclasses.replace(running_pod("Running"), namespace="bob"))
        first = await stand.request(LOG, method="GET")
        refused = await stand.request(LOG, method="GET")
        of_bob = await stand.request(LOG.replace("alice", "bob"), method="GET")
        assert [client.status for client in (first, refused, of_bob)] == [200, 503, 200]
        assert refused.body == b"1 logs of namespace alice are open now: end one of them, or retry later"
        first.writer.close()
        await until_there_is_room(stand, LOG)


async def test_a_log_is_copied_in_its_namespaces_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: asyncio.Queue[int] = asyncio.Queue()

    async def note(_: Turn, size: int) -> None:
        copied.put_nowait(size)

    monkeypatch.setattr(handler.LogHandler, "find_log", find_endless_log)
    monkeypatch.setattr(Turn, "copied", note)
    async with kubelet_api() as stand:
        await stand.request(LOG, method="GET")
        assert await asyncio.wait_for(copied.get(), 60) == len(b"a line\n")


async def test_readers_of_large_arrays_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them holds all tasks, and a follower reads them again every two seconds."""
    arrays = {"train": array("R" * 5), "huge": array("R" * 50)}

    async def find_array(_: object, __: object, pod: BoundPod, *given: Any) -> tuple[EndlessLog, Any]:
        return EndlessLog(arrays[pod.name]), given[-1]

    monkeypatch.setattr(handler.LogHandler, "find_log", find_array)
    monkeypatch.setattr(handler, "OF_A_NAMESPACE", 4)
    monkeypatch.setattr(handler, "TASKS_OF_A_READER", 2)
    async with kubelet_api() as stand:
        stand.serve(dataclasses.replace(running_pod("Running"), name="huge"))
        small = await stand.request(LOG, method="GET")
        others = [await stand.request(log, method="GET") for log in (LOG, LOG.replace("train", "huge"))]
        assert [client.status for client in (small, *others)] == [200, 503, 503]
        small.writer.close()
        await until_there_is_room(stand, LOG.replace("train", "huge"))


@pytest.mark.parametrize(("path", "method"), [(LOG, "GET"), ("/exec/alice/train/main", "POST")])
async def test_a_slurmcluster_that_cannot_be_used_now_is_said_so(
    monkeypatch: pytest.MonkeyPatch, path: str, method: str
) -> None:
    async with kubelet_api() as stand:
        monkeypatch.setattr(stand.reconciler._clusters, "of_node", lambda _: None)
        refused = await stand.request(path, method=method)
        assert refused.status == 503
        assert b"The SlurmCluster of this pod's node cannot be used now" in refused.body
