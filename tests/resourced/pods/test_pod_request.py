"""Which requests of pods are in memory at once: tenants make them large, and red-box may take long."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_resourced.pods import pod_request
from redbox_resourced.translation.references import PodReferences
from tests.resourced.pods.factories import manifest
from tests.resourced.pods.pod_life_harness import NODE, pod_life, until


async def test_what_pods_refer_to_is_in_memory_for_a_few_pods_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: Counter[str] = Counter()
    released = asyncio.Event()

    async def read_slowly(_: object, pod: dict[str, Any], __: object) -> PodReferences:
        held[pod["metadata"]["namespace"]] += 1
        await released.wait()
        return PodReferences()

    monkeypatch.setattr(pod_request, "read_references", read_slowly)
    pods = [(namespace, f"{namespace}-{number}") for namespace in ("a", "b", "c") for number in range(5)]
    async with pod_life() as life:
        for namespace, name in pods:
            metadata = {"namespace": namespace, "name": name, "uid": name}
            life.api.put(ResourcePath(kinds.POD, name, namespace), manifest(metadata=metadata))
        await until(lambda: [where for _, where in life.api.requests].count(NODE) == len(pods))
        await until(lambda: held.total() >= pod_request.AT_ONCE)
        await asyncio.sleep(0)
        assert held.total() == pod_request.AT_ONCE
        assert max(held.values()) <= pod_request.OF_A_NAMESPACE
        released.set()
        await until(lambda: life.redbox.jobs.keys() == {name for _, name in pods})


async def test_large_requests_are_on_their_way_a_few_at_once_and_hold_up_no_small_one() -> None:
    """32 of each account, with 8 MiB and their bodies, would be more than resourced's memory."""
    sizes: dict[str, int] = {}

    async with pod_life() as life:
        life.redbox.puts.clear()
        life.request_script = lambda pod: "#!/bin/sh\n" + "x" * sizes[pod["metadata"]["name"]]
        for namespace in ("a", "b", "c"):
            for number in range(10):
                name = f"{namespace}-{number}"
                sizes[name] = pod_request.LARGE
                metadata = {"namespace": namespace, "name": name, "uid": name}
                life.api.put(ResourcePath(kinds.POD, name, namespace), manifest(metadata=metadata))
        await until(lambda: life.redbox.asked.count("PUT") == pod_request.LARGE_OF_A_CLUSTER)
        await until(lambda: not life.pods.queue.unfinished or len(life.translated) >= 30)
        sizes["small"] = 10
        metadata = {"namespace": "d", "name": "small", "uid": "small"}
        life.api.put(ResourcePath(kinds.POD, "small", "d"), manifest(metadata=metadata))
        await until(lambda: life.redbox.asked.count("PUT") == pod_request.LARGE_OF_A_CLUSTER + 1)
        life.redbox.puts.set()
        await until(lambda: life.redbox.jobs.keys() == sizes.keys())


async def test_a_large_pod_waits_for_its_turn_without_its_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    held: Counter[str] = Counter()
    released = asyncio.Event()

    async def read_slowly(*_: object) -> PodReferences:
        held["now"] += 1
        await released.wait()
        return PodReferences()

    monkeypatch.setattr(pod_request, "read_references", read_slowly)
    large = {"big": "x" * 2 * pod_request.LARGE}
    async with pod_life() as life:
        for number in range(9):
            metadata = {"namespace": "a", "name": f"p{number}", "uid": f"p{number}", "annotations": large}
            life.api.put(ResourcePath(kinds.POD, f"p{number}", "a"), manifest(metadata=metadata))
        await until(lambda: [where for _, where in life.api.requests].count(NODE) == 9)
        await until(lambda: held.total() == pod_request.OF_A_NAMESPACE)
        # Each was read once to see that it is large, and kept by those alone whose turn it is.
        assert life.api.asked.count("get Pod") == 9 + pod_request.OF_A_NAMESPACE
        released.set()
        await until(lambda: len(life.redbox.jobs) == 9)
