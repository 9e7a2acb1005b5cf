"""What one pod may bring along, so that no tenant fills the resourced of all."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from redbox_clusters.slurm_cluster import PodsSpec
from redbox_resourced.translation import limits, registries
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.pod import TargetPartition, check_supported
from redbox_resourced.translation.references import PodReferences
from tests.resourced.translation.factories import container, pod, requested, secret

LARGE = {"large": secret(value="x" * (limits.MOST_BYTES // 4))}


def of_secret(name: str) -> dict[str, Any]:
    return {"name": f"v{name}", "secret": {"secretName": "large"}}


def fields(count: int) -> list[dict[str, Any]]:
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    return [{"name": f"V{number}", "valueFrom": source} for number in range(count)]


def check(given: dict[str, Any]) -> None:
    check_supported(given, PodsSpec(), TargetPartition("debug"))


def test_the_values_that_a_pod_names_are_counted_before_anything_is_read() -> None:
    check(pod(container(env=fields(limits.MOST_VALUES))))
    items = [{"path": str(number), "fieldRef": {"fieldPath": "metadata.name"}} for number in range(24)]
    downward = {"name": "d", "projected": {"sources": [{"downwardAPI": {"items": items}}]}}
    with pytest.raises(Unsupported, match=r"it takes 1026 values .* a pod may take 1024: take whole objects"):
        check(pod(container(env=fields(1000)), volumes=[downward]))


@pytest.mark.parametrize(
    "given",
    [
        pod(container(), volumes=[of_secret(str(number)) for number in range(5)]),
        pod(container(envFrom=[{"secretRef": {"name": "many"}}] * 65)),
    ],
    ids=["files", "variables"],
)
def test_the_bytes_of_a_pod_are_counted_while_they_are_made(given: dict[str, Any]) -> None:
    many = secret(**{f"V{number}": "x" * 1024 for number in range(128)})
    with pytest.raises(Unsupported, match=r"have more than 8 MiB, .*: name fewer keys"):
        requested(given, secrets={**LARGE, "many": many})


@pytest.mark.parametrize(
    "given",
    [
        pod(
            container(),
            volumes=[{"name": "p", "projected": {"sources": [{"configMap": {"name": "c"}}] * 20}}],
        ),
        pod(container(envFrom=[{"configMapRef": {"name": "c"}}] * 20)),
    ],
    ids=["files", "variables"],
)
def test_values_without_content_are_counted_too(given: dict[str, Any]) -> None:
    """A thousand times the 160,000 that a ConfigMap may have would take ten minutes."""
    empty = {"data": {f"V{number}": "" for number in range(4000)}}
    with pytest.raises(Unsupported, match="have more than 8 MiB, with 256 bytes for each: name fewer keys"):
        requested(given, config_maps={"c": empty})


@pytest.mark.parametrize(
    ("given", "field", "most"),
    [
        (pod(*(container(f"c{number}") for number in range(65))), "spec.containers", 64),
        (pod(initContainers=[container(f"c{number}") for number in range(65)]), "spec.initContainers", 64),
        (pod(volumes=[{"name": f"v{number}", "emptyDir": {}} for number in range(257)]), "spec.volumes", 256),
        (
            pod(container(volumeMounts=[{"name": "v", "mountPath": f"/{number}"} for number in range(257)])),
            "spec.containers[main].volumeMounts",
            256,
        ),
    ],
)
def test_the_parts_of_a_pod_are_counted_before_anything_is_read(
    given: dict[str, Any], field: str, most: int
) -> None:
    """Each container is compared with each volume."""
    with pytest.raises(Unsupported) as refused:
        check(given)
    assert str(refused.value) == f"{field}: there are too many: write at most {most}"


def test_an_object_is_decoded_once_however_often_it_is_named() -> None:
    binary = {"data": {"a": "1"}, "binaryData": {"b": "AA=="}}
    references = PodReferences(secrets={"s": secret(user="alice")}, config_maps={"c": binary})
    assert references.secret("s") is references.secret("s")
    assert references.config_map("c") is references.config_map("c")
    assert references.config_map("c") == {"a": b"1", "b": b"\0"}
    assert references.config_map_texts("c") == {"a": b"1"}


def test_a_pull_secret_that_is_named_again_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(wraps=registries._entries)
    monkeypatch.setattr(registries, "_entries", read)
    login = secret(**{registries.LOGINS: '{"auths": {"r": {"username": "u", "password": "p"}}}'})
    requested(pod(imagePullSecrets=[{"name": "s"}] * 3), secrets={"s": login})
    assert read.call_count == 1


def probed(*words: str, value: str = "") -> dict[str, Any]:
    probe = {"exec": {"command": list(words)}}
    return pod(container(env=[{"name": "X", "value": value}], livenessProbe=probe))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["sh", "$(X)" * 250_000],
            r"livenessProbe\.exec\.command\[1\]: it is too long: write at most 131072",
        ),
        (["$(X)"] * 1000, "have more than 8 MiB"),
    ],
    ids=["one", "many"],
)
def test_what_a_probe_names_is_counted_before_it_is_made(words: list[str], problem: str) -> None:
    with pytest.raises(Unsupported, match=problem):
        requested(probed(*words, value="x" * 100_000))  # 25 GB, and 100 MB


def test_references_without_an_end_are_looked_at_once() -> None:
    """Each of them could be looked for to the end of the word, while nothing else runs in resourced."""
    word = "$(" * 500_000
    with pytest.raises(Unsupported, match="it is too long"):
        requested(probed(word))
