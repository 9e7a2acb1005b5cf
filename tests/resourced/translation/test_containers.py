from __future__ import annotations

from typing import Any

import pytest

from redbox_api.pod_parts import HttpHeader, PodHandler, PodMount, PodProbe
from redbox_resourced.translation.errors import Unsupported
from tests.resourced.translation.factories import container, pod, program, secret, translated


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "docker://docker.io/library/busybox:latest"),
        ("alice/tool:2", "docker://docker.io/alice/tool:2"),
        ("docker.io/busybox:1", "docker://docker.io/library/busybox:1"),
        ("quay.io/a/b/c", "docker://quay.io/a/b/c:latest"),
        ("localhost/x:1", "docker://localhost/x:1"),
        ("registry:5000/x", "docker://registry:5000/x:latest"),
        (f"busybox:1@sha256:{'a' * 64}", f"docker://docker.io/library/busybox@sha256:{'a' * 64}"),
        ("/images/tool.sif", "/images/tool.sif"),
    ],
)
def test_images_are_named_as_kubelets_complete_them(image: str, name: str) -> None:
    found = translated(image=image)
    assert (found.image, found.shown_image) == (name, image)


def test_an_image_with_a_scheme_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"^spec\.containers\[main\]\.image: "):
        translated(image="oras://example.org/x")


@pytest.mark.parametrize(
    ("image", "given", "policy"),
    [
        ("busybox", None, "Always"),
        ("busybox:latest", None, "Always"),
        ("registry:5000/busybox", None, "Always"),
        ("busybox:1", None, "IfNotPresent"),
        (f"busybox@sha256:{'a' * 64}", None, "IfNotPresent"),
        ("/x.sif", None, "IfNotPresent"),
        ("busybox", "Never", "Never"),
    ],
)
def test_latest_is_pulled_always(image: str, given: str | None, policy: str) -> None:
    assert translated(image=image, imagePullPolicy=given).pull_policy == policy


def test_command_arguments_and_folder_are_as_given() -> None:
    found = translated(command=["sh", "-c"], args=["echo $(A)"], workingDir="/data")
    assert (found.command, found.args, found.working_dir) == (["sh", "-c"], ["echo $(A)"], "/data")
    assert (translated().command, translated().args) == ([], None)


def test_sidecars_are_init_containers_that_always_restart() -> None:
    early = [container("setup"), container("proxy", restartPolicy="Always")]
    found = program(pod(initContainers=early, restartPolicy="OnFailure"))
    assert [(each.name, each.always_restarts) for each in found.init_containers] == [
        ("setup", False),
        ("proxy", True),
    ]
    assert found.restart_policy == "OnFailure"


def test_a_main_container_has_no_restart_policy_of_its_own() -> None:
    with pytest.raises(Unsupported, match=r"^spec\.containers\[main\]\.restartPolicy: "):
        translated(restartPolicy="Always")


def test_a_probe_has_all_its_numbers_and_the_number_of_its_port() -> None:
    probe = {
        "httpGet": {
            "port": "web",
            "path": "healthz",
            "host": "h",
            "scheme": "HTTPS",
            "httpHeaders": [{"name": "X", "value": "y"}],
        },
        "initialDelaySeconds": 1,
        "periodSeconds": 2,
        "timeoutSeconds": 3,
        "successThreshold": 4,
        "failureThreshold": 5,
        "terminationGracePeriodSeconds": 6,
    }
    found = translated(ports=[{"name": "web", "containerPort": 8080}], startupProbe=probe)
    assert found.startup_probe == PodProbe(
        http_port=8080,
        http_path="/healthz",
        http_host="h",
        https=True,
        http_headers=[HttpHeader(name="X", value="y")],
        initial_delay_s=1,
        period_s=2,
        timeout_s=3,
        success_threshold=4,
        failure_threshold=5,
        termination_grace_s=6,
    )


@pytest.mark.parametrize(
    ("field", "name"), [("livenessProbe", "liveness_probe"), ("readinessProbe", "readiness_probe")]
)
def test_probes_by_a_program_and_by_tcp(field: str, name: str) -> None:
    assert getattr(translated(**{field: {"exec": {"command": ["ok"]}}}), name) == PodProbe(exec=["ok"])
    assert getattr(translated(**{field: {"tcpSocket": {"port": 5432}}}), name) == PodProbe(tcp_port=5432)


def test_a_probes_command_is_expanded_as_kubelets_do_and_a_hooks_is_not() -> None:
    words = ["$(USER)", "$(SECRET)", "$$(USER)", "$(cat /x)", "$("]
    env = [
        {"name": "USER", "value": "al"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    found = translated(
        {"secrets": {"s": secret(k="x")}},
        env=env,
        livenessProbe={"exec": {"command": words}},
        lifecycle={"preStop": {"exec": {"command": words}}},
    )
    assert found.liveness_probe == PodProbe(exec=["al", "", "$(USER)", "$(cat /x)", "$("])
    assert found.pre_stop == PodHandler(exec=words)


def test_a_port_by_a_name_that_the_container_does_not_declare_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"livenessProbe\.tcpSocket\.port: .*'web'"):
        translated(livenessProbe={"tcpSocket": {"port": "web"}})


def test_a_value_that_no_request_has_is_refused_by_its_field_without_the_value() -> None:
    with pytest.raises(
        Unsupported, match=r"^spec\.containers\[main\]\.livenessProbe\.periodSeconds: "
    ) as refusal:
        translated(livenessProbe={"exec": {"command": ["x"]}, "periodSeconds": -17})
    assert "-17" not in str(refusal.value)


def test_a_handler_without_an_action_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"preStop: it has no action"):
        translated(lifecycle={"preStop": {}})


def test_hooks_and_the_signal_of_the_stop() -> None:
    hooks = {
        "postStart": {"exec": {"command": ["a"]}},
        "preStop": {"sleep": {"seconds": 5}},
        "stopSignal": "SIGUSR1",
    }
    found = translated(lifecycle=hooks)
    assert (found.post_start, found.pre_stop, found.stop_signal) == (
        PodHandler(exec=["a"]),
        PodHandler(sleep_s=5),
        "SIGUSR1",
    )


def test_ports_of_tcp_are_declared() -> None:
    ports = [
        {"containerPort": 80},
        {"containerPort": 81, "protocol": "TCP", "hostPort": 81},
        {"containerPort": 53, "protocol": "UDP"},
    ]
    assert translated(ports=ports).ports == [80, 81]
    with pytest.raises(Unsupported, match=r"ports\[80\]\.hostPort: "):
        translated(ports=[{"containerPort": 80, "hostPort": 8080}])


def test_mounts_with_parts_of_volumes() -> None:
    mounts = [
        {"name": "v", "mountPath": "/a", "subPath": "x", "readOnly": True},
        {"name": "v", "mountPath": "b", "subPathExpr": "$(HOSTNAME)"},
    ]
    found = program(pod(container(volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}]))
    assert found.containers[0].mounts == [
        PodMount(volume="v", mount_path="/a", sub_path="x", read_only=True),
        PodMount(volume="v", mount_path="/b", sub_path="$(HOSTNAME)", expand_sub_path=True),
    ]


def test_a_claim_that_is_read_only_is_so_for_all_mounts() -> None:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}
    given = pod(container(volumeMounts=[{"name": "v", "mountPath": "/a"}]), volumes=[claim])
    assert program(given, claims={"data": "/work/data"}).containers[0].mounts[0].read_only


def test_a_volume_that_is_read_only_is_so_for_all_mounts() -> None:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    given = pod(container(volumeMounts=[{"name": "v", "mountPath": "/a"}]), volumes=[claim])
    found = program(given, claims={"data": "/work/data"}, read_only_claims=frozenset({"data"}))
    assert found.containers[0].mounts[0].read_only


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"terminationMessagePath": "/msg"}, "message_path", "/msg"),
        ({"terminationMessagePolicy": "FallbackToLogsOnError"}, "message_from_logs", True),
        ({"terminationMessagePolicy": "File"}, "message_from_logs", False),
        ({"resources": {"limits": {"memory": "1Gi"}}}, "memory_limit", 1 << 30),
        ({"securityContext": {"readOnlyRootFilesystem": True}}, "read_only_root", True),
        ({"securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}}, "name", "main"),
        ({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}, "name", "main"),
    ],
)
def test_other_fields_of_containers(fields: dict[str, Any], name: str, value: object) -> None:
    assert getattr(translated(**fields), name) == value


def test_input_and_terminal_are_the_containers() -> None:
    found = translated(stdin=True, stdinOnce=True, tty=True)
    assert (found.stdin, found.stdin_once, found.tty) == (True, True, True)
    plain = translated()
    assert (plain.stdin, plain.stdin_once, plain.tty) == (False, False, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"readinessProbe": {"exec": {"command": ["ok"]}}},
        {"lifecycle": {"preStop": {"exec": {"command": ["ok"]}}}},
    ],
)
def test_no_command_enters_the_ranks_of_an_mpi_program(fields: dict[str, Any]) -> None:
    """An init container, and a program that a port shows to be ready, are as always."""
    given = pod(container(), metadata={"annotations": {"redbox.dev/mpi": "pmix"}})
    given["spec"]["containers"][0]["livenessProbe"] = {"tcpSocket": {"port": 80}}
    given["spec"]["initContainers"] = [container("setup", **fields)]
    program(given)
    given["spec"]["containers"][0] |= fields
    with pytest.raises(Unsupported, match=r"^spec: container main has a probe or a hook that executes"):
        program(given)
