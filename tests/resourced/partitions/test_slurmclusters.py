"""SlurmClusters as they are written, and what becomes of the others where one of them is written badly."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from redbox.server.certificates import make_authority
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS
from redbox_kube.api.objects import ApiUnreachable, Object, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from tests.kube.fakes import FakeApiServer

AUTHORITY = make_authority("tests", datetime(2026, 11, 21, tzinfo=UTC)).certificate.decode()
COMMENT = "# Universität Zürich\n"


def slurm_cluster(name: str, bundle: bytes, **spec: Any) -> Object:
    given = {
        "endpoint": "https://127.0.0.1:1",
        "caBundle": base64.b64encode(bundle).decode(),
        "audience": f"redbox.dev/{name}/1",
    }
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {**given, **spec}}


async def synced(*clusters: Object) -> tuple[set[str], dict[str, str]]:
    """Which are followed, and which cannot be, once all are known."""
    api = FakeApiServer()
    api.fail(ApiUnreachable("away"), verb="token")
    for cluster in clusters:
        api.put(ResourcePath(SLURM_CLUSTERS, cluster["metadata"]["name"]), cluster)
    registry = ClusterRegistry(api.client, ServiceAccountName("redbox", "resourced"))
    running = asyncio.create_task(registry.run())
    async with asyncio.timeout(60):
        while not registry.synced and not running.done():  # noqa: ASYNC110 (it sets no event)
            await asyncio.sleep(0)
    result = set(registry.followed), dict(registry.invalid)
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
    return result


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
async def test_a_bundle_with_a_comment_in_any_script_is_used(encoding: str) -> None:
    bundle = (COMMENT + AUTHORITY).encode(encoding)
    assert await synced(slurm_cluster("hpc1", bundle)) == ({"hpc1"}, {})


@pytest.mark.parametrize(
    "bad",
    [
        slurm_cluster("bad", b"x"),
        slurm_cluster("bad", COMMENT.encode()[2:]),
        slurm_cluster("bad", b"\xff\xfe"),
        slurm_cluster("bad", AUTHORITY.replace("M", "\0").encode()),
        slurm_cluster("bad", b"", caBundle="not base64 \u00e4"),
        slurm_cluster("bad", b"", endpoint=7),
    ],
    ids=["nothing", "a word", "no text", "zeros", "no base64", "no endpoint"],
)
async def test_one_that_cannot_be_used_is_said_and_harms_no_other(bad: Object) -> None:
    followed, invalid = await synced(bad, slurm_cluster("hpc1", AUTHORITY.encode()))
    assert followed == {"hpc1"}
    assert "SlurmCluster bad cannot be used" in invalid["bad"]


async def test_without_its_ca_one_is_not_connected_to() -> None:
    source = {"namespace": "slurm", "name": "redbox"}
    bad = slurm_cluster("bad", b"", caBundleFrom=source)
    del bad["spec"]["caBundle"]
    followed, invalid = await synced(bad, slurm_cluster("hpc1", AUTHORITY.encode(), caBundleFrom=source))
    assert followed == {"hpc1"}
    assert invalid == {"bad": "SlurmCluster bad waits for the CA that caBundleFrom names"}


async def test_a_node_may_be_of_a_slurm_cluster_that_cannot_be_used_or_is_not_listed_yet() -> None:
    api = FakeApiServer()
    bad = slurm_cluster("bad", b"x")
    api.put(ResourcePath(SLURM_CLUSTERS, "bad"), spec=bad["spec"])
    registry = ClusterRegistry(api.client, ServiceAccountName("redbox", "resourced"))
    assert registry.may_have_node("gone.debug")
    running = asyncio.create_task(registry.run())
    await until(lambda: registry.synced and registry.invalid)
    assert registry.of_node("bad.debug") is None
    assert registry.may_have_node("bad.debug")
    assert not registry.may_have_node("gone.debug")
    running.cancel()
    await asyncio.wait({running})


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (nothing sets an event)
            await asyncio.sleep(0)


async def test_a_slurm_cluster_that_moves_is_connected_again_and_a_deleted_one_is_not_followed() -> None:
    api = FakeApiServer()
    api.fail(ApiUnreachable("away"), verb="token")
    path = ResourcePath(SLURM_CLUSTERS, "hpc1")
    spec = slurm_cluster("hpc1", AUTHORITY.encode())["spec"]
    api.put(path, spec=spec)
    registry = ClusterRegistry(api.client, ServiceAccountName("redbox", "resourced"))
    running = asyncio.create_task(registry.run())
    await until(lambda: "hpc1" in registry.followed)
    first = registry.followed["hpc1"]
    api.put(path, spec={**spec, "endpoint": "https://127.0.0.1:2"})
    await until(lambda: registry.followed.get("hpc1") is not first)
    assert registry.followed["hpc1"].cluster.spec.endpoint == "https://127.0.0.1:2"
    await api.delete(path)
    await until(lambda: not registry.followed)
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
