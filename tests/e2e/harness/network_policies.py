"""NetworkPolicies that are enforced on each node of the bed, and pods that try to get in.

kube-network-policies gives the verdict on each new connection. It has the kernel ask it by nftables' `queue`,
which kernels of small machines lack, and goes on where these rules of its own fail: iptables' NFQUEUE, which
they have, stands in.
"""

from __future__ import annotations

import signal
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.plan import Role
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import CACHE, Daemon, Host
from redbox_bed.images.node_images import BUSYBOX
from redbox_bed.kube.conf import POD_NETWORK
from redbox_bed.programs.network_policies import ensure_network_policies
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.waiting import eventually

NAME = "e2e-network-policies"
NAMESPACE = "kube-system"
QUEUE = "100"
IDENTITY = "/var/run/secrets/kubernetes.io/serviceaccount"
RULES = (
    ("--match=conntrack", "--ctstate=ESTABLISHED,RELATED", "--jump=ACCEPT"),
    ("--match=owner", "--uid-owner=0", "--jump=ACCEPT"),  # the node's own: kubelet's probes
    (f"--destination={POD_NETWORK}", "--jump=NFQUEUE", f"--queue-num={QUEUE}", "--queue-bypass"),
)


@contextmanager
def enforced(bed: Bed, kubernetes: Kubernetes) -> Iterator[None]:
    """As long as the block lasts, for traffic to pods."""
    program = ensure_network_policies(bed.places, Progress.silent())
    config = yaml.safe_load(bed.places.kubeconfig.read_text())
    authority = b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
    (control_plane,) = bed.plan.of_role(Role.CONTROL_PLANE)
    with kubernetes.applied(NAMESPACE, *account()), ExitStack() as enforcing:
        token = kubernetes("create", "token", NAME, f"--namespace={NAMESPACE}").strip()
        for node in nodes_of(bed):
            node.write(f"{IDENTITY}/token", token, mode=0o600)
            node.write(f"{IDENTITY}/ca.crt", authority)
            daemon = Daemon(
                NAME,
                (
                    f"{CACHE}/{program.relative_to(bed.places.cache)}",
                    *(f"--hostname-override={node.name}", f"--nfqueue-id={QUEUE}"),
                    "--metrics-bind-address=127.0.0.1:9080",
                ),
                env={"KUBERNETES_SERVICE_HOST": control_plane.address, "KUBERNETES_SERVICE_PORT": "6443"},
            )
            enforcing.enter_context(enforced_on(node, daemon))
        yield


@contextmanager
def enforced_on(node: Host, daemon: Daemon) -> Iterator[None]:
    """Rules that a killed test leaves behind refuse nothing: without a program that answers all may pass."""
    node.ensure(daemon)
    try:
        eventually(lambda: answers_on(node), what=f"{NAME} on {node.name}")
        for rule in RULES:
            node.run("iptables", "--table=mangle", "--append=POSTROUTING", *rule)
        yield
    finally:
        for rule in RULES:
            node.run("iptables", "--table=mangle", "--delete=POSTROUTING", *rule, check=False)
        node.kill(daemon.name, signal.SIGTERM)  # it removes its own rules, where it has any
        node.run("rm", "-r", IDENTITY)


def answers_on(node: Host) -> bool:
    queues = node.run("cat", "/proc/net/netfilter/nfnetlink_queue", check=False).stdout
    return any(line.split()[:1] == [QUEUE] for line in queues.splitlines())


def account() -> Iterator[Object]:
    """Its identity, which reads pods, namespaces and policies."""
    yield {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
    }
    yield {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    }


def nodes_of(bed: Bed) -> list[Host]:
    return [bed.host(spec.name) for spec in bed.plan.of_role(Role.NODE)]


@dataclass(frozen=True)
class Clients:
    """A pod on each node, in a namespace of their own."""

    kubernetes: Kubernetes
    namespace: str
    pods: tuple[str, ...]

    def pages(self, address: str) -> list[str]:
        """What each of them gets from there; empty where it gets nothing."""
        return [self._page(pod, address) for pod in self.pods]

    def connect(self, address: str, port: int) -> list[bool]:
        """Whether each of them gets a connection: what a policy refuses gets no answer at all."""
        return [self._connects(pod, address, str(port)) for pod in self.pods]

    def _connects(self, pod: str, address: str, port: str) -> bool:
        ask = ("nc", "-w3", address, port, "-e", "true")
        try:
            self.kubernetes("exec", f"--namespace={self.namespace}", pod, "--", *ask)
        except BedError as error:
            return "timed out" not in str(error)
        return True

    def _page(self, pod: str, address: str) -> str:
        ask = ("wget", "-q", "-T", "5", "-O", "-", f"http://{address}/")
        try:
            return self.kubernetes("exec", f"--namespace={self.namespace}", pod, "--", *ask).strip()
        except BedError:
            return ""


@contextmanager
def clients(bed: Bed, kubernetes: Kubernetes, namespace: str) -> Iterator[Clients]:
    """As long as the block lasts, in a namespace that is made for them."""
    pods = {node.name: f"client-{node.name}" for node in nodes_of(bed)}
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    with kubernetes.applied(namespace, made):
        eventually(lambda: kubernetes.get("serviceaccount", "default", namespace))
        with kubernetes.applied(namespace, *(client(pod, node) for node, pod in pods.items())):
            ready = ("wait", "pod", "--all", "--for=condition=Ready", "--timeout=110s")
            kubernetes(f"--namespace={namespace}", *ready)
            yield Clients(kubernetes, namespace, tuple(pods.values()))


def client(name: str, node: str) -> Object:
    container = {"name": "main", "image": BUSYBOX, "command": ["sleep", "3600"]}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
