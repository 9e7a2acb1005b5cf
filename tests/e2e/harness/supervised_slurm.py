"""A Slurm in two unprivileged pods by plain manifests: slurmctld and one slurmd under the supervisor."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.plan import Role
from redbox_bed.core.progress import Progress
from redbox_bed.images.node_images import import_missing
from redbox_bed.images.slurm_image import slurm_image
from redbox_bed.kube.cluster_dns import ensure_dns
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.waiting import eventually

NAMESPACE = "e2e-supervised-slurm"
CONTROLLER, WORKER = "ctl", "w-0"
SLURM = 64030
"""Debian's uid of slurm."""
GRACE_S = 300
STATE, SPOOL = "/var/spool/slurmctld", "/var/spool/slurmd"
CONF = f"""\
ClusterName=e2e
SlurmctldHost={CONTROLLER}
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/slurm
CredType=cred/slurm
AuthInfo=use_client_ids
StateSaveLocation={STATE}
SlurmdSpoolDir={SPOOL}
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
LogTimeFormat=iso8601_ms,format_stderr
SlurmctldSyslogDebug=quiet
SlurmdSyslogDebug=quiet
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
MaxNodeCount=8
TreeWidth=64
ReturnToService=1
SlurmdTimeout=60
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
PropagateResourceLimits=NONE
SrunPortRange=60001-61000
MpiDefault=none
MailProg=/bin/true
GresTypes=gpu
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
NodeSet=worker Feature=worker
PartitionName=all Nodes=worker Default=YES MaxTime=UNLIMITED State=UP
"""
CAPABILITIES = ["SETUID", "SETGID", "CHOWN", "KILL"]
KILL_SLURMD = 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" != slurmd ] || kill -9 ${p#/proc/}; done'


@dataclass(frozen=True)
class SupervisedSlurm:
    """Commands run in the worker's pod as root, whose configuration slurmctld sent."""

    kubernetes: Kubernetes

    def run(self, *command: str, pod: str = WORKER) -> str:
        return self.kubernetes("exec", f"--namespace={NAMESPACE}", pod, "--", *command).strip()

    def submit(self, script: str) -> str:
        wrapped = ("sbatch", "--parsable", "--chdir=/tmp", "--output=/tmp/%j.out", f"--wrap={script}")
        return self.run(*wrapped)

    def job(self, job: str) -> Mapping[str, str]:
        fields = self.run("scontrol", "--oneliner", "show", "job", job).split()
        return dict(field.split("=", 1) for field in fields if "=" in field)

    def reaches(self, job: str, state: str) -> Mapping[str, str]:
        def fields() -> Mapping[str, str] | None:
            read = self.job(job)
            return read if read["JobState"] == state else None

        return eventually(fields, what=f"{state} of job {job}")

    def node(self) -> str:
        """Of the worker, once slurmctld has a record of it."""
        try:
            return self.run("scontrol", "--oneliner", "show", "node", WORKER)
        except BedError:
            return ""

    def process(self, name: str, pod: str = WORKER) -> str:
        """The pid of the only process of that name; nothing while there is none or a second one."""
        found = self.run("sh", "-c", f"grep -lx {name} /proc/[0-9]*/comm || true", pod=pod).split()
        return found[0].split("/")[2] if len(found) == 1 else ""

    def configure(self, conf: str) -> None:
        """Replace slurm.conf and return when slurmctld's pod has it."""
        change = {"data": {"slurm.conf": conf}}
        self.kubernetes.patch("configmap", "slurm-conf", change, NAMESPACE)
        # Without a change of the pod the kubelet would take up to a minute.
        digest = secrets.token_hex(8)
        self.kubernetes.patch(
            "pod", CONTROLLER, {"metadata": {"annotations": {"e2e/conf": digest}}}, NAMESPACE
        )
        eventually(
            lambda: self.run("cat", "/etc/slurm/slurm.conf", pod=CONTROLLER) == conf.strip(),
            what="the new slurm.conf in the pod",
        )

    def restarts(self, pod: str) -> int:
        (status,) = self.kubernetes.get("pod", pod, NAMESPACE)["status"]["containerStatuses"]
        return int(status["restartCount"])


@contextmanager
def supervised_slurm(bed: Bed, release: str) -> Iterator[SupervisedSlurm]:
    """As long as the block lasts; the image and the cluster's DNS are made first where they are missing."""
    image = slurm_image(bed.places, Progress.silent(), release)
    ensure_dns(bed, Progress.silent())
    for spec in bed.plan.of_role(Role.NODE):
        import_missing(bed.host(spec.name), [image])
    kubernetes = Kubernetes(bed)
    enforce = {"pod-security.kubernetes.io/enforce": "baseline"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": enforce}}
    kubernetes.apply(json.dumps(namespace))
    try:
        for each in objects(image.name):
            kubernetes.apply(json.dumps(each))
        slurm = SupervisedSlurm(kubernetes)
        eventually(lambda: " State=IDLE " in slurm.node(), what="an idle node")
        yield slurm
    finally:
        kubernetes.delete("pod", CONTROLLER, WORKER, namespace=NAMESPACE, gracePeriodSeconds=1)
        kubernetes.delete("namespace", NAMESPACE)


def objects(image: str) -> Iterator[Object]:
    key = base64.b64encode(secrets.token_bytes(64)).decode()
    yield {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata("slurm-key"),
        "data": {"slurm.key": key},
    }
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata("slurm-conf"),
        "data": {"slurm.conf": CONF, "cgroup.conf": "CgroupPlugin=disabled\n"},
    }
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata("slurm"),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "slurm"}},
    }
    yield pod(CONTROLLER, controller(image), controller_volumes(), fs_group=SLURM)
    yield pod(WORKER, worker(image), worker_volumes(), terminationGracePeriodSeconds=GRACE_S)


def metadata(name: str) -> Object:
    return {"name": name, "namespace": NAMESPACE, "labels": {"app": "slurm"}}


def pod(
    name: str,
    container: Object,
    volumes: list[Object],
    *,
    fs_group: int | None = None,
    **spec: object,
) -> Object:
    security = {"seccompProfile": {"type": "RuntimeDefault"}} | ({"fsGroup": fs_group} if fs_group else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name),
        "spec": {
            "hostname": name,
            "subdomain": "slurm",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 30,
            # Slurm asks for bare names of hosts.
            "dnsConfig": {"searches": [f"slurm.{NAMESPACE}.svc.cluster.local"]},
            "securityContext": security,
            "containers": [container],
            "volumes": volumes,
            **spec,
        },
    }


def container_of(image: str, name: str, capabilities: list[str]) -> Object:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": capabilities},
        },
    }


def controller(image: str) -> Object:
    made = container_of(image, "slurmctld", [])
    made["securityContext"] |= {"runAsNonRoot": True, "runAsUser": SLURM, "runAsGroup": SLURM}
    mounts = {"etc": "/etc/slurm", "state": STATE, "run": "/run", "tmp": "/tmp"}
    return {
        **made,
        "args": ["slurmctld"],
        "readinessProbe": {"tcpSocket": {"port": 6817}, "periodSeconds": 1},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }


def controller_volumes() -> list[Object]:
    sources = [{"configMap": {"name": "slurm-conf"}}, {"secret": {"name": "slurm-key"}}]
    return [
        {"name": "etc", "projected": {"defaultMode": 0o440, "sources": sources}},
        {"name": "run", "emptyDir": {"medium": "Memory"}},
        *({"name": name, "emptyDir": {}} for name in ("state", "tmp")),
    ]


def worker(image: str) -> Object:
    mounts = {"key": "/etc/slurm", "run": "/run", "spool": SPOOL, "tmp": "/tmp"}
    fields = {"POD_UID": "metadata.uid", "POD_IP": "status.podIP"}
    conf = ("--conf-server", CONTROLLER, "--conf", "Feature=worker CPUs=2 RealMemory=250")
    return {
        **container_of(image, "slurmd", CAPABILITIES),
        "args": ["slurmd", "--", *conf],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
        ],
        "resources": {"limits": {"cpu": "500m", "memory": "300Mi"}},
        "readinessProbe": {"exec": {"command": ["test", "-S", "/run/slurm/sack.socket"]}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"exec": {"command": ["redbox-slurmpod", "pre-stop"]}}},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }


def worker_volumes() -> list[Object]:
    return [
        {"name": "key", "secret": {"secretName": "slurm-key", "defaultMode": 0o400}},
        {"name": "run", "emptyDir": {"medium": "Memory"}},
        *({"name": name, "emptyDir": {}} for name in ("spool", "tmp")),
    ]
