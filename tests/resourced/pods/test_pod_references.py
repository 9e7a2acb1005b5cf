"""What a pod refers to is read by name; what is missing is waited for, in the kubelet's words."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_resourced.pods import pod_references
from redbox_resourced.pods.pod_references import ReferenceMissing, read_references
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.references import PodReferences
from redbox_resourced.volumes.claim_path import ClaimPending
from tests.kube.fakes import FakeApiServer
from tests.resourced.pods.factories import manifest


def api_server() -> FakeApiServer:
    api = FakeApiServer()
    api.put(ResourcePath(kinds.SECRET, "login", "alice"), {"data": {"user": "YQ=="}})
    api.put(
        ResourcePath(kinds.CONFIG_MAP, "settings", "alice"), {"data": {"a": "1"}, "binaryData": {"b": "AA=="}}
    )
    claim = {"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}
    api.put(ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, "data", "alice"), claim)
    api.put(ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, "early", "alice"), {"spec": {}})
    api.put(ResourcePath(kinds.PERSISTENT_VOLUME, "pv-1"), {"spec": {"csi": {}}})
    return api


def env(kind: str, **chosen: Any) -> dict[str, Any]:
    variable = {"name": "V", "valueFrom": {kind: chosen}}
    return {"containers": [{"name": "main", "image": "i", "env": [variable]}]}


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


async def read(api: FakeApiServer, **spec: Any) -> PodReferences:
    return await read_references(api.client, manifest(**spec), path_of)


def path_of(claim: dict[str, Any], volume: dict[str, Any] | None) -> str:
    if volume is None:
        msg = f"claim {claim['metadata']['name']} is not bound to a volume yet"
        raise ClaimPending(msg)
    return f"/volumes/{volume['metadata']['name']}"


async def test_each_object_is_read_once_and_by_get_alone() -> None:
    api = api_server()
    main = {"envFrom": [{"secretRef": {"name": "login"}}, {"configMapRef": {"name": "settings"}}]}
    other = {"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}}]}
    found = await read(
        api,
        containers=[{"name": "main", "image": "i", **main}, {"name": "other", "image": "i", **other}],
        volumes=[
            {"name": "s", "secret": {"secretName": "login"}},
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "settings"}}]}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    )
    assert (set(found.secrets), set(found.config_maps)) == ({"login"}, {"settings"})
    assert found.claims == {"data": "/volumes/pv-1"}
    assert sorted(api.asked) == [
        "get ConfigMap",
        "get PersistentVolume",
        "get PersistentVolumeClaim",
        "get Secret",
    ]


@pytest.mark.parametrize(
    ("spec", "reason", "event", "words"),
    [
        (
            env("secretKeyRef", name="no", key="k"),
            "CreateContainerConfigError",
            "Failed",
            'Error: secret "no" not found',
        ),
        (
            env("configMapKeyRef", name="settings", key="k"),
            "CreateContainerConfigError",
            "Failed",
            "Error: couldn't find key k in ConfigMap settings",
        ),
        (
            volume(configMap={"name": "no"}),
            "ContainerCreating",
            "FailedMount",
            'MountVolume.SetUp failed for volume "v" : configmap "no" not found',
        ),
        (
            volume(secret={"secretName": "login", "items": [{"key": "k", "path": "f"}]}),
            "ContainerCreating",
            "FailedMount",
            'MountVolume.SetUp failed for volume "v" : couldn\'t find key k in Secret login',
        ),
        (
            volume(persistentVolumeClaim={"claimName": "no"}),
            "ContainerCreating",
            "FailedMount",
            'MountVolume.SetUp failed for volume "v" : persistentvolumeclaim "no" not found',
        ),
        (
            volume(persistentVolumeClaim={"claimName": "early"}),
            "ContainerCreating",
            "FailedMount",
            "claim early is not bound to a volume yet",
        ),
    ],
)
async def test_what_is_missing_is_waited_for(
    spec: dict[str, Any], reason: str, event: str, words: str
) -> None:
    with pytest.raises(ReferenceMissing) as missing:
        await read(api_server(), **spec)
    assert (missing.value.reason, missing.value.event, str(missing.value)) == (reason, event, words)


@pytest.mark.parametrize(
    "spec",
    [
        env("secretKeyRef", name="no", key="k", optional=True),
        env("configMapKeyRef", name="settings", key="k", optional=True),
        volume(secret={"secretName": "no", "optional": True}),
        volume(projected={"sources": [{"secret": {"name": "no", "optional": True}}]}),
        {"imagePullSecrets": [{"name": "no"}, {}]},
    ],
)
async def test_what_is_optional_may_be_missing(spec: dict[str, Any]) -> None:
    assert (await read(api_server(), **spec)).secrets == {}


async def test_a_namespace_that_the_chart_does_not_list_is_named() -> None:
    api = api_server()
    api.fail(ApiRefused(403, "forbidden"), kind="Secret")
    with pytest.raises(ReferenceMissing, match=r"pods\.namespaces does not list the namespace alice"):
        await read(api, **volume(secret={"secretName": "login"}))


async def test_the_ca_of_the_default_token_volume_needs_no_right_in_the_pods_namespace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text("PEM")
    monkeypatch.setattr(pod_references, "OWN_AUTHORITY", authority)
    api = api_server()
    api.fail(ApiRefused(403, "forbidden"))
    sources = [{"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]
    found = await read(api, **volume(projected={"sources": sources}))
    assert found.config_maps["kube-root-ca.crt"]["data"] == {"ca.crt": "PEM"}


async def test_a_pod_that_names_too_many_objects_is_refused_before_any_is_read() -> None:
    api = api_server()
    names = [{"name": str(number), "secret": {"secretName": str(number)}} for number in range(257)]
    with pytest.raises(
        Unsupported, match="it names 257 Secrets, ConfigMaps and claims, and a pod may name 256"
    ):
        await read(api, volumes=names)
    assert not api.requests


async def test_large_objects_are_read_no_further_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_references, "MOST_BYTES", 1000)
    api = api_server()
    for number in range(20):
        api.put(ResourcePath(kinds.CONFIG_MAP, f"c{number:02}", "alice"), {"data": {"text": "x" * 400}})
    names = [{"name": f"c{number:02}", "configMap": {"name": f"c{number:02}"}} for number in range(20)]
    with pytest.raises(Unsupported, match="put large files into a claim"):
        await read(api, volumes=names)
    assert len(api.requests) == pod_references.AT_ONCE


async def test_values_without_content_and_long_labels_are_no_way_past_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_references, "MOST_BYTES", 100_000)
    api = api_server()
    for name in ("one", "two"):
        values = {f"k{number}": "" for number in range(200)}
        api.put(ResourcePath(kinds.CONFIG_MAP, name, "alice"), {"data": values})
    labels = {"metadata": {"labels": {f"l{number}": "x" for number in range(200)}}}
    api.put(ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, "data", "alice"), labels, spec={"volumeName": "pv-1"})
    one, two = ({"name": name, "configMap": {"name": name}} for name in ("one", "two"))
    claimed = {"name": "c", "persistentVolumeClaim": {"claimName": "data"}}
    asked: list[Any] = []

    def noting(claim: dict[str, Any], _: dict[str, Any] | None) -> str:
        asked.append(claim)
        return "/v"

    await read_references(api.client, manifest(volumes=[one, claimed]), noting)
    assert [set(claim["metadata"]) for claim in asked] == [{"name", "namespace", "uid"}]
    with pytest.raises(Unsupported, match="put large files into a claim"):
        await read(api, volumes=[one, two])


@pytest.mark.parametrize(
    ("spec", "claims"),
    [
        ({"csi": {}}, frozenset()),
        ({"csi": {"readOnly": True}}, {"data"}),
        ({"nfs": {}, "mountOptions": ["hard", "ro"]}, {"data"}),
    ],
)
async def test_a_volume_that_is_read_only_stays_so(spec: dict[str, Any], claims: frozenset[str]) -> None:
    api = api_server()
    api.put(ResourcePath(kinds.PERSISTENT_VOLUME, "pv-1"), {"spec": spec})
    found = await read(api, **volume(persistentVolumeClaim={"claimName": "data"}))
    assert found.read_only_claims == claims
