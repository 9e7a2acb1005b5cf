"""Tokens for the API server in a pod's volumes, and the variables that name the server."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.pod_parts import PodProgram
from redbox_clusters.slurm_cluster import PodsSpec
from redbox_resourced.translation.api_tokens import (
    DEFAULT_S,
    LONGEST_S,
    REDBOX_S,
    renewal_at,
    token_lifetime_s,
)
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.pod import TargetPartition, translate
from redbox_resourced.translation.references import PodReferences
from tests.resourced.translation.factories import TOKEN_MOUNT, TOKEN_VOLUME, container, pod

CA = {"kube-root-ca.crt": {"data": {"ca.crt": "PEM"}}}
SERVER = "https://api.example.org:6443"


def program(
    given: dict[str, Any], tokens: dict[str, str] | None = None, server: str | None = SERVER
) -> PodProgram:
    settings = PodsSpec(enabled=True, api_tokens=True, api_server=server)
    references = PodReferences(config_maps=CA, tokens=tokens or {})
    found = translate(given, references, settings, TargetPartition("debug")).pod
    assert found is not None
    return found


def with_default_volume(**fields: Any) -> dict[str, Any]:
    return pod(container(volumeMounts=[TOKEN_MOUNT], **fields), volumes=[TOKEN_VOLUME])


def variables(found: PodProgram) -> list[tuple[str, str | None]]:
    return [(variable.name, variable.value) for variable in found.containers[0].env]


def test_the_default_volume_has_the_token_as_a_secret_file() -> None:
    found = program(with_default_volume(), {"": "abc"}).volumes[0].files
    assert found is not None
    assert {file.path: bytes(file.content) for file in found.files} == {
        "token": b"abc",
        "ca.crt": b"PEM",
        "namespace": b"alice",
    }
    assert found.secret


def test_a_volume_without_a_token_is_no_secret_and_names_no_server() -> None:
    found = program(with_default_volume())
    assert found.volumes[0].files is not None
    assert [file.path for file in found.volumes[0].files.files] == ["ca.crt", "namespace"]
    assert not found.volumes[0].files.secret
    assert variables(found) == []


def test_a_projected_token_is_that_of_its_audience_at_its_path_and_mode() -> None:
    sources = [
        {"serviceAccountToken": {"path": "vault/token", "audience": "vault", "expirationSeconds": 600}}
    ]
    given = pod(volumes=[{"name": "v", "projected": {"defaultMode": 0o400, "sources": sources}}])
    found = program(given, {"": "of the server", "vault": "of vault"}).volumes[0].files
    assert found is not None
    assert [(file.path, bytes(file.content), file.mode) for file in found.files] == [
        ("vault/token", b"of vault", 0o400)
    ]


def test_a_token_of_another_audience_is_not_put_in_its_place() -> None:
    sources = [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]
    with pytest.raises(Unsupported, match=r"spec\.volumes\[v\]\.projected: .* get no API token"):
        program(pod(volumes=[{"name": "v", "projected": {"sources": sources}}]), {"": "of the server"})


@pytest.mark.parametrize(
    ("server", "host", "port"),
    [
        (SERVER, "api.example.org", "6443"),
        ("https://10.0.0.1", "10.0.0.1", "443"),
        ("https://[fd00::1]:6443", "fd00::1", "6443"),
    ],
)
def test_containers_find_the_server_by_the_variables_of_kubelets(server: str, host: str, port: str) -> None:
    given = with_default_volume() | {}
    given["spec"]["initContainers"] = [container("first")]
    found = program(given, {"": "abc"}, server)
    expected = [("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)]
    assert variables(found) == expected
    assert [(each.name, each.value) for each in found.init_containers[0].env] == expected


def test_the_containers_own_variables_come_later_and_so_replace_them() -> None:
    given = with_default_volume(env=[{"name": "KUBERNETES_SERVICE_HOST", "value": "proxy"}])
    assert variables(program(given, {"": "abc"}))[-1] == ("KUBERNETES_SERVICE_HOST", "proxy")


@pytest.mark.parametrize("server", ["https://host:port", "https://:6443", "https://$(X)"])
def test_a_server_without_host_and_port_is_named(server: str) -> None:
    with pytest.raises(Unsupported, match=r"spec\.pods\.apiServer of the SlurmCluster"):
        program(with_default_volume(), {"": "abc"}, server)


@pytest.mark.parametrize(
    ("seconds", "audience", "life"),
    [
        (None, "vault", 3600),
        (600, "vault", 600),
        (86_400, "vault", 86_400),
        (2**31, "vault", LONGEST_S),
        (86_400, "redbox.dev/hpc1/4711", REDBOX_S),
        (600, "redbox.dev/hpc1/4711", 600),
    ],
)
def test_a_token_lives_as_long_as_its_volume_asks_for_within_bounds(
    seconds: int | None, audience: str, life: int
) -> None:
    token = {"path": "t", "audience": audience, "expirationSeconds": seconds}
    volume = {"name": "v", "projected": {"sources": [{"serviceAccountToken": token}]}}
    assert token_lifetime_s(pod(volumes=[volume]), audience) == life


def test_the_default_token_lives_a_day_and_the_shortest_of_one_audience_counts() -> None:
    given = with_default_volume()
    assert token_lifetime_s(given, "") == DEFAULT_S
    source = {"serviceAccountToken": {"path": "t", "expirationSeconds": 900}}
    given["spec"]["volumes"].append({"name": "v", "projected": {"sources": [source]}})
    assert token_lifetime_s(given, "") == 900


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_token_is_renewed_before_a_fifth_of_its_life_is_left(spread: float) -> None:
    assert 750 <= renewal_at(1000, 0.0, spread) <= 800


def test_references_are_printed_without_tokens() -> None:
    assert "abc" not in repr(PodReferences(tokens={"": "abc"}))
