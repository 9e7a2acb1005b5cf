"""A red-box that the chart runs in the bed's Kubernetes; the login host gives it sshd and a Python.

The journal's volume is a folder that both nodes of Kubernetes have, as a disk that follows its pod. The bed
has no DNS for pods, so Service and API server are named by their addresses.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import CHART, NAMESPACE, RELEASE, TENANTS, Helm
from redbox_bed.hosts.host import Host
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_server import SSHD_LINES, trust_ssh_ca
from tests.e2e.harness.virtual_chart import forget_resourced
from tests.e2e.harness.waiting import eventually

NAME = "inpod"
OBJECT = f"redbox-{NAME}"
POD = f"{OBJECT}-0"
OBSERVER = "redbox-watch"
GROUP = "redbox-users"
VOLUME = "/srv/redbox-journal"
KUBE_NODES = ("k1", "k2")
POD_USER = "65532"


@dataclass(frozen=True)
class RedboxInPod:
    """The installed one, and what a test does to it."""

    bed: Bed
    kubectl: Kubernetes
    helm: Helm
    login: Host

    def install(self, *options: str, **values: Any) -> None:
        """Upgrade the release; `values` are those of this red-box that change."""
        self.helm(
            *("upgrade", RELEASE, str(CHART), "--reuse-values", "--take-ownership", "--timeout=110s"),
            *("--values=-", *options),
            stdin=json.dumps({"redboxes": {NAME: values}}),
        )
        self.is_ready()

    def deliver(self, delivery: str) -> None:
        """Have SlurmJobs delivered in this way from now on."""
        self.install(slurmCluster={"delivery": delivery})
        if delivery == "Virtual":
            eventually(self._has_virtual_nodes, what="virtual nodes that are served")

    def _has_virtual_nodes(self) -> bool:
        try:
            return self.kubectl.raw(f"/api/v1/nodes/{NAME}.debug/proxy/healthz") == "ok"
        except BedError:
            return False

    def pod(self) -> dict[str, Any]:
        """Nothing where it does not exist, between two of them."""
        return self.kubectl.get("pod", POD, NAMESPACE)

    @property
    def uid(self) -> str:
        return str(self.pod()["metadata"]["uid"])

    def is_ready(self) -> None:
        eventually(self._is_ready, what=f"a red-box that is ready: {POD}")

    def _is_ready(self) -> bool:
        wanted = (
            self.kubectl.get("statefulset", OBJECT, NAMESPACE).get("status", {}).get("updateRevision", "")
        )
        if not (pod := self.pod()):
            return False
        conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
        is_current = pod["metadata"]["labels"].get("controller-revision-hash") == wanted
        return is_current and conditions.get("Ready") == "True"

    def run(self, *command: str) -> str:
        """Run `redbox` in its pod."""
        return self.kubectl("exec", POD, *here(), "--container=redbox", "--", "redbox", *command)

    def findings(self) -> list[dict[str, str]]:
        """What `redbox check` reports; it exits with 1 where there is a fault."""
        script = "redbox check --output json; true"
        found: list[dict[str, str]] = json.loads(
            self.kubectl("exec", POD, *here(), "--container=redbox", "--", "sh", "-c", script)
        )
        return found

    def log(self) -> str:
        """What its container says, or said last where it waits for its next start."""
        try:
            return self.kubectl("logs", POD, *here(), "--container=redbox")
        except BedError:  # between two pods
            return ""

    # -- faults
    def lose_journal(self) -> None:
        """Remove what is on its volume, under the running red-box, and end that."""
        self.bed.host(KUBE_NODES[0]).run("rm", "-rf", f"{VOLUME}/journal")
        self.delete_pod()

    def kill(self) -> None:
        """Kill -9 in the middle of whatever it does; the kubelet starts it again in the same pod."""
        for node in KUBE_NODES:
            self.bed.host(node).run("sh", "-c", "kill -9 $(pgrep -f '[r]edbox serve')", check=False)

    def delete_pod(self, *, force: bool = False) -> None:
        how = ("--force", "--grace-period=0") if force else ()
        self.kubectl("delete", "pod", POD, *here(), "--wait=false", "--ignore-not-found", *how)

    def drain(self) -> None:
        """Drain its node, and let the node take pods again once red-box runs on the other one."""
        node, before = self.pod()["spec"]["nodeName"], self.uid
        selector = f"--pod-selector=app.kubernetes.io/name={OBJECT}"
        self.kubectl("drain", node, selector, "--ignore-daemonsets", "--timeout=60s")
        try:
            eventually(lambda: self._is_ready() and self.uid != before, what="a red-box on another node")
            assert self.pod()["spec"]["nodeName"] != node
        finally:
            self.kubectl("uncordon", node)

    def kill_agents(self) -> None:
        """Kill every agent on the login host that sshd started."""
        self.login.run("sh", "-c", "pkill -9 -f '[r]edbox-agent'", check=False)


def here() -> tuple[str, ...]:
    return (f"--namespace={NAMESPACE}",)


@contextmanager
def redbox_in_pod(bed: Bed) -> Iterator[RedboxInPod]:
    """Install it beside what is delivered, with resourced; in the end all is as it was delivered."""
    kubectl, helm, login = Kubernetes(bed), Helm(bed), bed.host("login")
    before: dict[str, Any] = json.loads(helm("get", "values", RELEASE, "--output=json"))
    files = prepare_login_node(login)
    _make_volume(bed, kubectl)
    secret = {"ssh-privatekey": base64.b64encode(files["ssh-ca.key"]).decode()}
    kubectl.apply(json.dumps(_object("v1", "Secret", f"{NAME}-ssh-ca", data=secret)))
    site = RedboxInPod(bed, kubectl, helm, login)
    try:
        site.install("--set=resourced.enabled=true", **_values(kubectl, login, files))
        yield site
    finally:
        helm.install(before)
        forget_resourced(kubectl)
        for kind, name in (
            ("pod", POD),
            ("persistentvolumeclaim", f"journal-{POD}"),
            ("secret", OBJECT),
            ("secret", f"{NAME}-ssh-ca"),
        ):
            kubectl("delete", kind, name, *here(), "--ignore-not-found", "--timeout=60s")
        kubectl("delete", "persistentvolume", f"journal-{NAME}", "--ignore-not-found", "--timeout=60s")
        login.run("rm", "-f", SSHD_LINES)
        reload_sshd(login)


def prepare_login_node(login: Host) -> dict[str, bytes]:
    """What the HPC administrator does by docs/administrators/ssh.md; returns the CA's key and known_hosts."""
    login.run("groupadd", "--force", GROUP)
    made = f"id {OBSERVER} || useradd --uid 2900 --create-home --shell /bin/sh --password '*' {OBSERVER}"
    login.run("sh", "-ec", made)
    for user in (*TENANTS, OBSERVER):
        login.run("usermod", "--append", "--groups", GROUP, user)
    return trust_ssh_ca(login)


def reload_sshd(login: Host) -> None:
    login.run("sh", "-c", "kill -HUP $(cut -d' ' -f1 /run/bed/sshd.pid)")


def _make_volume(bed: Bed, kubectl: Kubernetes) -> None:
    bed.host(KUBE_NODES[0]).run("rm", "-rf", VOLUME)
    bed.host(KUBE_NODES[0]).run("install", "-d", "-m", "0770", "-o", POD_USER, "-g", POD_USER, VOLUME)
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": NAME,
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": VOLUME, "type": "Directory"},
    }
    kubectl.apply(json.dumps(_object("v1", "PersistentVolume", f"journal-{NAME}", spec=spec)))


def _values(kubectl: Kubernetes, login: Host, files: dict[str, bytes]) -> dict[str, Any]:
    api = json.loads(kubectl("get", "service", "kubernetes", "--namespace=default", "--output=json"))
    address: str = api["spec"]["clusterIP"]
    own = f"{address.rpartition('.')[0]}.177"
    return {
        "settings": {"jobs": {"arrives_within_s": 20.0}},  # of a submit that a kill left unanswered; else 300
        "ssh": {"host": login.spec.address, "knownHosts": files["known_hosts"].decode()},
        "credentials": {"ca": {"secret": f"{NAME}-ssh-ca", "addresses": ["10.0.0.0/8"]}},
        "observer": OBSERVER,
        "rules": [{"namespaces": [name], "user": name} for name in TENANTS],
        "journal": {"storageClass": NAME},
        "apiServer": f"https://{address}",
        "names": [own],
        "service": {"clusterIP": own},
        "slurmCluster": {"endpoint": f"https://{own}:8443"},
    }


def _object(version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    place = {} if kind == "PersistentVolume" else {"namespace": NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place}, **more}
