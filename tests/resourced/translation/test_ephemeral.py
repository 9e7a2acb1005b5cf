"""A container of `kubectl debug`, as the runner begins it."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.pod_parts import EphemeralProgram
from redbox_clusters.slurm_cluster import PodsSpec, PodUsers
from redbox_resourced.translation.containers.ephemeral import alone, ephemeral_program, needs_of
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.pod import TargetPartition, check_supported
from redbox_resourced.translation.references import PodReferences
from tests.resourced.translation.factories import container, pod, secret

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
OTHER = {"name": "login", "secret": {"secretName": "s"}}


def debugged(added: dict[str, Any], **spec: Any) -> dict[str, Any]:
    others = [container("elsewhere"), container("debugger", **added)]
    return alone(pod(ephemeralContainers=others, **spec), "debugger")


def program(
    added: dict[str, Any],
    references: PodReferences | None = None,
    users: PodUsers = PodUsers.REFUSE,
    **spec: Any,
) -> EphemeralProgram:
    return ephemeral_program(debugged(added, **spec), references or PodReferences(), users)


def test_all_that_kubectl_debug_asks_for_is_passed_on() -> None:
    found = program(
        {
            "command": ["sh"],
            "stdin": True,
            "tty": True,
            "targetContainerName": "main",
            "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}},
        },
        volumes=[CLAIM],
    )
    assert (found.name, found.target, found.command) == ("debugger", "main", ["sh"])
    assert (found.stdin, found.tty, found.image) == (True, True, "docker://docker.io/library/busybox:1.36")
    assert found.mounts[0].mount_path == "/data"
    assert program({}).target is None


def test_a_claim_that_may_only_be_read_stays_so() -> None:
    references = PodReferences(claims={"c": "/d"}, read_only_claims=frozenset({"c"}))
    found = program({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}, references, volumes=[CLAIM])
    assert found.mounts[0].read_only


def test_its_own_secrets_are_read_and_no_others() -> None:
    source = {"secretKeyRef": {"name": "own", "key": "a"}}
    given = debugged({"env": [{"name": "A", "valueFrom": source}]}, volumes=[OTHER, CLAIM])
    needs = needs_of(given)["spec"]
    assert [each["name"] for each in needs["containers"]] == ["debugger"]
    assert needs["volumes"] == [CLAIM]
    found = ephemeral_program(given, PodReferences(secrets={"own": secret(a="b")}), PodUsers.REFUSE)
    assert [(each.name, each.value) for each in found.env] == [("A", "b")]


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        ({"securityContext": {"privileged": True}}, r"\[debugger\]\.securityContext\.privileged: a user"),
        ({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}, r"capabilities\.add: a user"),
        ({"securityContext": {"runAsUser": 0}}, r"pods\.users: map"),
        ({"newField": 1}, r"spec\.ephemeralContainers\[debugger\]\.newField: this version"),
        ({"command": ["a\0b"]}, r"spec\.ephemeralContainers\[debugger\]\.command"),
    ],
)
def test_what_a_container_cannot_have_is_refused_by_its_name(added: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Unsupported, match=sentence):
        program(added)


def test_beside_a_target_it_is_shown_the_targets_user() -> None:
    shown: dict[str, Any] = {"securityContext": {"runAsUser": 1000}}
    target = {"targetContainerName": "main"}
    assert program({**target}, users=PodUsers.MAP, **shown).run_as_user == 1000
    assert program({"securityContext": {"runAsUser": 5}}, users=PodUsers.MAP, **shown).run_as_user == 5
    own: dict[str, Any] = {
        "containers": [container("main", securityContext={"runAsUser": 7, "runAsGroup": 8})]
    }
    found = program({**target, "securityContext": {"runAsUser": None}}, users=PodUsers.MAP, **own)
    assert (found.run_as_user, found.run_as_group) == (7, 8)
    with pytest.raises(Unsupported, match="is shown the user and the group of container main"):
        program({**target, "securityContext": {"runAsUser": 5}}, users=PodUsers.MAP, **shown)


def test_refused_fields_of_one_do_not_refuse_its_pod() -> None:
    """They may be added while the pod waits in the queue."""
    added = pod(ephemeralContainers=[container("debugger", securityContext={"privileged": True})])
    check_supported(added, PodsSpec(), TargetPartition("debug"))
