"""The objects of a cluster: snapshots, Pod Security, and what a user's template can and cannot change."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_hosting.api.daemons import AccountingSpec
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.pods.accounting import AccountingCell, mariadb_set, slurmdbd_set
from redbox_hosting.build.pods.network import (
    daemon_service,
    network_policies,
    service_account,
    slurmctld_services,
    workers_budget,
    workers_service,
)
from redbox_hosting.build.pods.parts import owner_reference
from redbox_hosting.build.pods.pod_security import BeyondPlain, beyond_plain, places_of
from redbox_hosting.build.pods.slurmctld import config_maps, slurmctld_set
from redbox_hosting.build.pods.slurmrestd import (
    RestDeployment,
    connection_digest,
    control,
    rest_deployment,
)
from redbox_hosting.build.pods.trial import trial_pod
from redbox_hosting.build.pods.worker import WorkerPlan, dropped_fields, worker_pod
from redbox_slurmpod.cli import _parser
from tests.hosting.build.pod_security import beyond_restricted
from tests.hosting.factories import cell, node_set
from tests.hosting.snapshots import check

SNAPSHOTS = Path(__file__).with_name("snapshots")
IMAGE = cell().image
PRIVILEGED = {"redbox": {"profile": "Privileged"}}
RESTORE = {"redbox": {"restore": {"claimName": "copies", "path": "20261129T154700Z", "firstJobId": 100_047}}}
USERS = {"redbox": {"users": {"configMapRef": {"name": "people"}}}}
KEYS = {
    "slurmKeyRef": {"name": "mine", "key": "slurm"},
    "jwtKeyRef": {"name": "mine", "key": "jwt"},
    "jwksKeyRef": {"name": "idp", "key": "jwks"},
}
GPU = {"resources": {"limits": {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 2}, "requests": {"cpu": 1}}}
ESCALATION = "securityContext.allowPrivilegeEscalation"
CLAIM = {"metadata": {"name": "scratch"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
ACCOUNTING = AccountingCell(
    name="acct",
    uid="uid-of-acct",
    spec=AccountingSpec.model_validate({"redbox": {"database": {"enabled": True}}}),
    database_image="registry.example.org/mariadb:11.8",
    config_digest="d1",
)
REST = RestDeployment(
    name="api-restapi",
    role="slurmrestd",
    instance="api",
    owner=owner_reference("RestApi", "api", "uid-of-api"),
    port=6820,
    replicas=2,
    has_accounting=True,
)
OPERATOR = {"namespace": "redbox-system", "name": "redbox-hosting"}


def worker(spec: dict[str, Any] | None = None, *, cluster: dict[str, Any] | None = None) -> dict[str, Any]:
    return worker_pod(cell(cluster), WorkerPlan(node_set(**(spec or {})), 3, "rev1"))


PLACED = {"nodeSelector": {"pool": "a"}, "hostNetwork": True, "tolerations": None}
OBJECTS: dict[str, Any] = {
    "slurmctld": slurmctld_set(cell()),
    "slurmctld-24.11": slurmctld_set(cell(release=SlurmRelease.R24_11)),
    "slurmctld-own-keys-and-users": slurmctld_set(cell(KEYS | USERS)),
    "slurmctld-existing-claim": slurmctld_set(cell({"persistence": {"existingClaim": "mine"}})),
    "slurmctld-restore": slurmctld_set(cell(RESTORE)),
    "slurmctld-without-state": slurmctld_set(cell({"persistence": {"enabled": False}})),
    "slurmctld-claim": slurmctld_set(
        cell({"persistence": {"storageClassName": "fast", "resources": {"requests": {"storage": "9Gi"}}}})
    ),
    "slurmctld-services": slurmctld_services(
        cell(
            {"service": {"spec": {"type": "NodePort"}, "nodePort": 30817, "metadata": {"labels": {"a": "b"}}}}
        )
    ),
    "config-maps": config_maps(cell(), {"slurm.conf": "ClusterName=lab\n"}, "d1"),
    "worker": worker(),
    "worker-24.11": worker_pod(
        cell(release=SlurmRelease.R24_11), WorkerPlan(node_set(ordinalPadding=3), 3, "rev1", grace_s=60)
    ),
    "worker-gpu": worker({"slurmd": GPU}),
    "worker-privileged": worker(cluster=PRIVILEGED),
    "worker-without-limits": worker({"slurmd": {}}),
    "worker-claims": worker({"volumeClaimTemplates": [CLAIM], "oversubscribeNode": True}, cluster=USERS),
    "worker-external": worker(
        cluster={"external": True, "externalConfig": {"host": "ctl.example.org", "port": 26817}}
    ),
    "workers": [workers_service(cell()), workers_budget(cell()), service_account(cell(), "slurmd")],
    "control": [
        rest_deployment(cell(), control(cell(), "ClusterName=lab\n")),
        daemon_service(cell(), "control", "slurm", name="slurm-control", port=6822, owner=cell().owner),
    ],
    "restapi": rest_deployment(cell(), REST),
    "slurmdbd": slurmdbd_set(cell(), ACCOUNTING),
    "mariadb": mariadb_set(cell(), ACCOUNTING),
    "mariadb-restore": mariadb_set(cell(RESTORE), ACCOUNTING),
    "trial": trial_pod(cell({"template": {"spec": PLACED}}), "0123456789abcdef" * 2),
    "worker-homes": worker(cluster={"redbox": {**USERS["redbox"], "homes": {"claimName": "homes"}}}),
    "network-policies": network_policies(cell(), OPERATOR),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects(name: str) -> None:
    check(SNAPSHOTS / f"{name}.yaml", yaml.safe_dump(OBJECTS[name], sort_keys=False))


def pod_of(made: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = made["spec"] if made["kind"] == "Pod" else made["spec"]["template"]["spec"]
    return spec


PODS = {
    name: pod_of(each)
    for name, made in OBJECTS.items()
    for each in (made if isinstance(made, list) else [made])
    if each["kind"] in {"Pod", "Deployment", "StatefulSet"}
}


@pytest.mark.parametrize("name", PODS)
def test_every_pod_but_those_that_become_users_passes_restricted_and_those_baseline(name: str) -> None:
    pod = PODS[name]
    if name == "worker-privileged":
        assert "containers[slurmd].securityContext.privileged" in beyond_plain("slurmd", pod, places_of(pod))
    elif name.startswith("worker"):
        assert beyond_plain("slurmd", pod, places_of(pod)) == []
        assert "securityContext.runAsUser" not in beyond_restricted("slurmd", pod)
    else:
        role = {"control": "control", "restapi": "slurmrestd"}.get(name, name.partition("-")[0])
        assert beyond_restricted(role, pod) == []
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False


def test_a_worker_is_no_restricted_pod_and_says_why() -> None:
    place = "containers[slurmd].securityContext"
    assert beyond_restricted("slurmd", PODS["worker"]) == [
        f"{place}.runAsNonRoot",
        f"{place}.capabilities.add",
    ]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"securityContext": {"sysctls": [{"name": "a", "value": "b"}]}}, "securityContext.sysctls"),
        ({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}, "volumes[h].hostPath"),
        ({"volumes": [{"name": "n", "nfs": {"server": "a", "path": "/"}}]}, "volumes[n].nfs"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "securityContext.seccompProfile"),
        (
            {"initContainers": [{"name": "i", "securityContext": {"privileged": True}}]},
            "initContainers[i].securityContext.privileged",
        ),
        (
            {"containers": [{"name": "slurmd", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
            "containers[slurmd].securityContext.capabilities.add SYS_ADMIN",
        ),
        (
            {"containers": [{"name": "x", "ports": [{"containerPort": 1, "hostPort": 1}]}]},
            "containers[x].ports.hostPort",
        ),
        (
            {"containers": [{"name": "x", "securityContext": {"procMount": "Unmasked"}}]},
            "containers[x].securityContext.procMount",
        ),
        ({"hostIPC": True}, "hostIPC"),
        ({"shareProcessNamespace": True}, "shareProcessNamespace"),
        *(
            ({"containers": [{"name": name, "securityContext": given}]}, f"containers[{name}].{ESCALATION}")
            for name, given in (
                ("x", {"allowPrivilegeEscalation": True}),
                ("slurmd", {"allowPrivilegeEscalation": True}),
                ("slurmd", {"allowPrivilegeEscalation": None}),
                ("slurmd", None),
            )
        ),
        *(
            (
                {kind: [{"name": "x", "volumeMounts": [{"name": each, "mountPath": "/x"}]}]},
                f"{kind}[x].volumeMounts {each}",
            )
            for kind, each in (("containers", "keys"), ("containers", "run"), ("initContainers", "keys"))
        ),
    ],
)
def test_a_template_that_asks_for_more_than_plain_is_refused_by_name(
    change: dict[str, Any], field: str
) -> None:
    spec = {"template": {"spec": change}}
    with pytest.raises(BeyondPlain, match=re.escape(field)):
        worker(spec)
    assert pod_of(worker(spec, cluster=PRIVILEGED))


def test_the_fields_of_each_daemon_are_judged_and_so_is_its_template() -> None:
    asked = {"securityContext": {"privileged": True}}
    sidecar = {"name": "x", "image": "x"}
    accounting = replace(ACCOUNTING, spec=AccountingSpec.model_validate({"slurmdbd": asked}))
    builders: dict[str, Callable[[dict[str, Any]], object]] = {
        "slurmd": lambda cluster: worker({"slurmd": asked}, cluster=cluster),
        "slurmctld": lambda cluster: slurmctld_set(cell(cluster | {"slurmctld": asked})),
        "slurmdbd": lambda cluster: slurmdbd_set(cell(cluster), accounting),
        "slurmrestd": lambda cluster: rest_deployment(cell(cluster), replace(REST, container=asked)),
    }
    volumes = {"slurmctld": ("etc", "tls"), "slurmdbd": ("etc", "run"), "slurmrestd": ("tls",)}
    for role, build in builders.items():
        with pytest.raises(
            BeyondPlain, match=rf"does not allow containers\[{role}\].securityContext.privileged"
        ):
            build({})
        build(PRIVILEGED)
    for role, held in volumes.items():
        for name in held:
            mounts = [{"name": name, "mountPath": "/x"}]
            assert beyond_plain(role, {"containers": [{**sidecar, "volumeMounts": mounts}]}, ()) == [
                f"containers[x].volumeMounts {name}"
            ]


def test_a_sidecar_with_its_own_volumes_is_taken() -> None:
    mounts = [{"name": "own", "mountPath": "/own"}, {"name": "tmp", "mountPath": "/tmp"}]
    sidecar = {"name": "x", "image": "x", "volumeMounts": mounts}
    volumes = [{"name": "own", "emptyDir": {}}]
    pod = pod_of(worker({"template": {"spec": {"containers": [sidecar], "volumes": volumes}}}))
    assert sidecar in pod["containers"]


def test_a_users_fields_win_where_they_may() -> None:
    pod = worker(
        {
            "slurmd": {"image": "own:1", "env": [{"name": "POD_IP", "value": ""}]},
            "template": {
                "metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}},
                "spec": {"enableServiceLinks": True, "priorityClassName": "low", "hostname": "gpu-"},
            },
        }
    )
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "own:1"
    assert {
        "name": "POD_IP",
        "value": "",
        "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
    } in container["env"]
    assert pod["spec"]["enableServiceLinks"] is True
    assert pod["spec"]["priorityClassName"] == "low"
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["name"] == pod["spec"]["hostname"] == "gpu-3"


def test_a_user_cannot_take_the_fence_from_a_worker() -> None:
    fence = "slurm.redbox.dev/protected"
    pod = worker(
        {
            "slurmd": {"lifecycle": None, "args": ["sleep"], "name": "other"},
            "template": {
                "metadata": {
                    "labels": {fence: "false", "slurm.redbox.dev/cluster": "other"},
                    "annotations": {"karpenter.sh/do-not-disrupt": "false"},
                },
                "spec": {"terminationGracePeriodSeconds": 0, "tolerations": [], "subdomain": "x"},
            },
        }
    )
    (container,) = pod["spec"]["containers"]
    assert container["name"] == "slurmd"
    assert container["lifecycle"] == {"preStop": {"exec": {"command": ["redbox-slurmpod", "pre-stop"]}}}
    assert container["args"][0] == "slurmd"
    assert pod["metadata"]["labels"][fence] == "true"
    assert pod["metadata"]["labels"]["slurm.redbox.dev/cluster"] == "slurm"
    assert pod["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30 * 86_400 + 3_600
    assert len(pod["spec"]["tolerations"]) == 3
    assert pod["spec"]["subdomain"] == "slurm-workers"


LIMITED = {"resources": {"limits": {"cpu": "4", "memory": "8Gi"}}}
FENCE_IS_OPEN = {
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    "args": ["slurmd", "--", "-D"],
    "command": ["sh"],
    "livenessProbe": {"exec": {"command": ["false"]}},
    "startupProbe": {"exec": {"command": ["false"]}},
}


@pytest.mark.parametrize(
    ("spec", "dropped"),
    [
        ({"slurmd": LIMITED | FENCE_IS_OPEN}, [f"spec.slurmd.{key}" for key in FENCE_IS_OPEN]),
        (
            {"template": {"spec": {"containers": [{"name": "slurmd", **FENCE_IS_OPEN}]}}},
            [f"spec.template.spec.containers[slurmd].{key}" for key in FENCE_IS_OPEN],
        ),
        (
            {"template": {"spec": {"containers": [{"name": "slurmd", "lifecycle": None, "args": None}]}}},
            [f"spec.template.spec.containers[slurmd].{key}" for key in ("lifecycle", "args")],
        ),
        *(
            ({"template": {"spec": {key: value}}}, [f"spec.template.spec.{key}"])
            for key, value in (("tolerations", None), ("containers", None), ("activeDeadlineSeconds", 60))
        ),
        ({"template": {"spec": {"tolerations": []}}, "slurmd": LIMITED | {"image": "own:1"}}, []),
        ({"template": {"spec": {"containers": [{"name": "x", "image": "y", "args": ["z"]}]}}}, []),
    ],
)
def test_what_would_open_the_fence_is_dropped_and_named(spec: dict[str, Any], dropped: list[str]) -> None:
    pod, plain = worker(spec)["spec"], worker()["spec"]
    for key in ("args", "lifecycle", "command", "livenessProbe", "startupProbe"):
        assert pod["containers"][0].get(key) == plain["containers"][0].get(key)
    assert pod["tolerations"] == plain["tolerations"]
    assert "activeDeadlineSeconds" not in pod
    assert sorted(dropped_fields(node_set(**spec))) == sorted(dropped)


def test_a_users_tolerations_are_added() -> None:
    given = {"key": "gpu", "operator": "Exists"}
    pod = worker({"template": {"spec": {"tolerations": [given]}}})["spec"]
    assert pod["tolerations"] == [*worker()["spec"]["tolerations"], given]


@pytest.mark.parametrize("name", PODS)
def test_the_arguments_of_a_container_are_a_role_of_the_image(name: str) -> None:
    """Its ENTRYPOINT is redbox-slurmpod, which refuses a role that it does not have."""
    for container in [*PODS[name]["containers"], *PODS[name].get("initContainers", [])]:
        if container["image"] == IMAGE and "command" not in container:
            assert _parser().parse_args(container["args"]).role == container["args"][0]


def test_requests_of_a_worker_are_its_limits() -> None:
    (container,) = worker({"slurmd": GPU})["spec"]["containers"]
    limits = {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 2}
    assert container["resources"] == {"limits": limits, "requests": limits}


def test_a_worker_has_no_liveness_probe() -> None:
    """A restart would end its jobs."""
    for name, pod in PODS.items():
        for container in pod["containers"]:
            assert "livenessProbe" not in container, name


def test_the_operators_slurmrestd_has_no_key_and_asks_for_its_certificate() -> None:
    pod = PODS["control"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert volumes == ["etc", "run", "tmp", "tls"]
    (etc,) = pod["volumes"][0]["projected"]["sources"]
    assert etc == {"configMap": {"name": "slurm-config"}}
    assert pod["containers"][1]["args"][-3:] == ["--ask-clients", "--client", "redbox-hosting"]


def test_every_name_fits_into_a_label_of_dns() -> None:
    names = [
        each["metadata"]["name"]
        for made in OBJECTS.values()
        for each in (made if isinstance(made, list) else [made])
    ]
    assert all(len(name) + 35 <= 63 for name in names), "a Controller's name has 40 characters, ours has 5"


def test_a_trial_goes_where_slurmctld_may_and_takes_nothing_else_of_its_template() -> None:
    spec = OBJECTS["trial"]["spec"]
    assert spec["nodeSelector"] == {"pool": "a"}
    assert "hostNetwork" not in spec
    assert "tolerations" not in spec
    sources = [source for volume in spec["volumes"] for source in volume if source != "name"]
    assert sources == ["configMap", *["emptyDir"] * 4]


def test_what_slurmrestd_reads_at_its_start_replaces_its_pod_and_nothing_else_does() -> None:
    conf = "ClusterName=lab\nSlurmctldHost=a\nAccountingStorageHost=db\nKillWait=30\n"
    assert connection_digest(conf) == connection_digest(conf.replace("KillWait=30", "KillWait=31"))
    for before, after in (("lab", "other"), ("=a\n", "=b\n"), ("=db", "=db2")):
        assert connection_digest(conf) != connection_digest(conf.replace(before, after))


def test_slurmrestd_serves_an_accounting_only_where_there_is_one() -> None:
    assert not control(cell(), "ClusterName=lab\n").has_accounting
    assert control(cell(), "AccountingStorageType=accounting_storage/slurmdbd\n").has_accounting
