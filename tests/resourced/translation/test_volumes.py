from __future__ import annotations

from typing import Any

import pytest

from redbox_api.pod_parts import EmptyDirVolume, HostPathVolume, PodVolume
from redbox_resourced.translation.errors import Unsupported
from tests.resourced.translation.factories import TOKEN_MOUNT, TOKEN_VOLUME, container, pod, program, secret

CA = {"kube-root-ca.crt": {"data": {"ca.crt": "PEM"}}}


def volume(given: dict[str, Any], **references: Any) -> PodVolume:
    metadata = {"labels": {"b": 'say "hi"\n', "a": "1"}}
    limited = container(resources={"limits": {"cpu": "2"}})
    return program(pod(limited, metadata=metadata, volumes=[{"name": "v", **given}]), **references).volumes[0]


def files(found: PodVolume) -> dict[str, tuple[bytes, int]]:
    assert found.files is not None
    return {file.path: (bytes(file.content), file.mode) for file in found.files.files}


def test_the_default_token_volume_has_the_authority_and_the_namespace_and_no_token() -> None:
    given = pod(container(volumeMounts=[TOKEN_MOUNT]), volumes=[TOKEN_VOLUME])
    found = program(given, config_maps=CA).volumes[0]
    assert files(found) == {"ca.crt": (b"PEM", 0o644), "namespace": (b"alice", 0o644)}


@pytest.mark.parametrize(
    "change",
    [{"name": "mine"}, {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
)
def test_a_token_that_the_author_asks_for_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="get no API token: leave out serviceAccountToken"):
        program(pod(volumes=[TOKEN_VOLUME | change]), config_maps=CA)


def test_a_secret_has_all_its_keys_or_those_that_are_chosen() -> None:
    secrets = {"s": secret(a="1", b="2")}
    found = volume({"secret": {"secretName": "s", "defaultMode": 256}}, secrets=secrets)
    assert files(found) == {"a": (b"1", 0o400), "b": (b"2", 0o400)}
    assert found.files is not None
    assert found.files.secret
    items = [{"key": "a", "path": "deep/a", "mode": 0o600}]
    found = volume({"secret": {"secretName": "s", "items": items}}, secrets=secrets)
    assert files(found) == {"deep/a": (b"1", 0o600)}


def test_a_config_map_has_texts_and_binary_values() -> None:
    maps = {"c": {"data": {"a": "é"}, "binaryData": {"b": "/w=="}}}
    found = volume({"configMap": {"name": "c"}}, config_maps=maps)
    assert files(found) == {"a": ("é".encode(), 0o644), "b": (b"\xff", 0o644)}
    assert found.files is not None
    assert not found.files.secret


def test_optional_objects_and_keys_that_do_not_exist_are_no_files() -> None:
    assert files(volume({"secret": {"secretName": "s", "optional": True}})) == {}
    chosen = {"name": "c", "optional": True, "items": [{"key": "x", "path": "x"}]}
    assert files(volume({"configMap": chosen}, config_maps={"c": {"data": {"a": "1"}}})) == {}


def test_a_required_key_that_does_not_exist_is_refused() -> None:
    chosen = {"name": "c", "items": [{"key": "x", "path": "x"}]}
    with pytest.raises(Unsupported, match=r"spec\.volumes\[v\]: c has no key 'x'"):
        volume({"configMap": chosen}, config_maps={"c": {"data": {"a": "1"}}})


def test_fields_of_the_pod_are_files_as_kubelets_write_them() -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {
            "path": "cpu",
            "mode": 0o444,
            "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"},
        },
    ]
    assert files(volume({"downwardAPI": {"items": items}})) == {
        "labels": (b'a="1"\nb="say \\"hi\\"\\n"', 0o644),
        "cpu": (b"2", 0o444),
    }


def test_addresses_are_no_files() -> None:
    items = [{"path": "ip", "fieldRef": {"fieldPath": "status.podIP"}}]
    with pytest.raises(Unsupported, match=r"items\[ip\]\.fieldRef: status\.podIP"):
        volume({"downwardAPI": {"items": items}})


def test_of_several_sources_the_later_one_has_the_path() -> None:
    sources = [
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    found = volume(
        {"projected": {"defaultMode": 0o440, "sources": sources}},
        config_maps={"c": {"data": {"a": "map", "c": "3"}}},
        secrets={"s": secret(a="secret")},
    )
    assert files(found) == {"a": (b"secret", 0o440), "c": (b"3", 0o440), "name": (b"train", 0o440)}
    assert found.files is not None
    assert found.files.secret


@pytest.mark.parametrize(
    ("given", "empty_dir"),
    [
        ({}, EmptyDirVolume()),
        ({"sizeLimit": "0"}, EmptyDirVolume()),
        (
            {"medium": "Memory", "sizeLimit": "1Mi"},
            EmptyDirVolume(in_memory=True, size_limit=1 << 20),
        ),
    ],
)
def test_empty_folders(given: dict[str, str], empty_dir: EmptyDirVolume) -> None:
    assert volume({"emptyDir": given}).empty_dir == empty_dir


def test_paths_of_the_node_and_of_claims() -> None:
    given = {"hostPath": {"path": "/data", "type": "DirectoryOrCreate"}}
    assert volume(given).host_path == HostPathVolume(path="/data", type="DirectoryOrCreate")
    claim = {"persistentVolumeClaim": {"claimName": "c"}}
    found = volume(claim, claims={"c": "/home/alice/v"}).host_path
    assert found == HostPathVolume(path="/home/alice/v", type="Directory")


def test_a_claim_without_a_path_and_a_volume_without_a_source_are_refused() -> None:
    with pytest.raises(Unsupported, match="the claim c has no path"):
        volume({"persistentVolumeClaim": {"claimName": "c"}})
    with pytest.raises(Unsupported, match="it names no source"):
        volume({})


SHM = {"name": "v", "mountPath": "/dev/shm/"}
MEMORY: dict[str, Any] = {"name": "v", "emptyDir": {"medium": "Memory"}}


def test_an_empty_dir_at_dev_shm_is_the_containers_own_memory() -> None:
    assert program(pod(container(volumeMounts=[SHM]), volumes=[MEMORY])).containers[0].mounts


@pytest.mark.parametrize(
    ("mount", "volume", "others"),
    [
        (SHM, MEMORY, [container("other", volumeMounts=[SHM])]),
        (SHM, MEMORY, [container("other", volumeMounts=[{"name": "v", "mountPath": "/cache"}])]),
        ({**SHM, "subPath": "a"}, MEMORY, []),
        (SHM, {"name": "v", "hostPath": {"path": "/data"}}, []),
    ],
)
def test_a_volume_that_cannot_be_at_dev_shm_is_refused_by_its_mount(
    mount: dict[str, Any], volume: dict[str, Any], others: list[dict[str, Any]]
) -> None:
    given = pod(container(volumeMounts=[mount]), *others, volumes=[volume])
    with pytest.raises(
        Unsupported, match=r"spec\.containers\[main\]\.volumeMounts\[v\]\.mountPath: .*/dev/shm"
    ):
        program(given)
