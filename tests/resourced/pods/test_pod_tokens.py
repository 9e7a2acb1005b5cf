"""Tokens for the API server are asked for only where both sides allow it, bound to the pod."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_clusters.slurm_cluster import PodsSpec
from redbox_kube.api.objects import ApiRefused, PodRef
from redbox_resourced.pods.pod_references import ReferenceMissing
from redbox_resourced.pods.pod_tokens import read_tokens
from redbox_resourced.translation.api_tokens import DEFAULT_S, HOUR_S
from tests.kube.fakes import FakeApiServer
from tests.resourced.pods.factories import manifest
from tests.resourced.translation.factories import TOKEN_VOLUME

ON = PodsSpec(enabled=True, api_tokens=True, api_server="https://api:6443")


def own_volume(audience: str = "vault", name: str = "mine") -> dict[str, Any]:
    source = {"serviceAccountToken": {"path": "token", "audience": audience}}
    return {"name": name, "projected": {"sources": [source]}}


async def read(
    api: FakeApiServer,
    *volumes: dict[str, Any],
    settings: PodsSpec = ON,
    listed: tuple[str, ...] = ("alice",),
) -> dict[str, str]:
    given = manifest(volumes=list(volumes), serviceAccountName="runner")
    return await read_tokens(api.client, given, settings, listed)


async def test_each_audience_has_one_token_of_the_pods_account_bound_to_the_pod() -> None:
    api = FakeApiServer()
    found = await read(api, TOKEN_VOLUME, own_volume(), own_volume(name="again"))
    assert found == {"": "token of alice/runner for ", "vault": "token of alice/runner for vault"}
    assert api.tokens_of == [PodRef("train", "pod-uid")] * 2
    assert sorted(api.token_lifetimes) == [HOUR_S, DEFAULT_S]


async def test_a_pod_that_asks_for_none_gets_none() -> None:
    api = FakeApiServer()
    assert await read(api, {"name": "v", "emptyDir": {}}) == {}
    assert api.tokens_of == []


async def test_nothing_is_asked_for_where_the_slurmcluster_does_not_allow_it() -> None:
    api = FakeApiServer()
    assert await read(api, TOKEN_VOLUME, own_volume(), settings=PodsSpec(enabled=True)) == {}
    assert api.tokens_of == []


async def test_elsewhere_the_default_volume_goes_without_a_token() -> None:
    api = FakeApiServer()
    assert await read(api, TOKEN_VOLUME, listed=("bob",)) == {}
    assert api.tokens_of == []


async def test_elsewhere_a_pod_whose_author_asks_for_a_token_waits() -> None:
    api = FakeApiServer()
    with pytest.raises(
        ReferenceMissing, match="apiTokenNamespaces does not list the namespace alice"
    ) as missing:
        await read(api, TOKEN_VOLUME, own_volume(), listed=())
    assert (missing.value.reason, missing.value.event) == ("ContainerCreating", "FailedMount")
    assert 'for volume "mine"' in str(missing.value)
    assert api.tokens_of == []


async def test_a_token_that_the_server_refuses_is_waited_for() -> None:
    api = FakeApiServer()
    api.fail(ApiRefused(422, "denied by policy"))
    with pytest.raises(ReferenceMissing, match=r"failed to fetch token: .*denied by policy"):
        await read(api, TOKEN_VOLUME)
