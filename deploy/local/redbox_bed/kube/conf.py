"""What all of the cluster's programs agree on: addresses, folders, identities, kubeconfigs. Pure.

The control plane's own flags are in `control_plane`, a node's in `node`; `kube_cluster` applies both.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from redbox_bed.core.plan import HostSpec, Plan, Role
from redbox_bed.hosts.host import Daemon
from redbox_bed.kube.pki import Identity

CONFIGURATION = "/etc/kubernetes"
"""Own to each host: a node must not see the control plane's keys."""
SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"
POD_NETWORK = "10.244.0.0/16"
API_PORT = 6443
TOKEN_ISSUER = "https://kubernetes.default.svc.cluster.local"  # noqa: S105
KUBELET_ADMINISTRATORS = "bed:kubelet-administrators"
AUTHORITIES = ("kubernetes", "front-proxy", "etcd")
Flags = dict[str, str | int | bool]
"""Of one of Kubernetes' programs, by name."""
PAUSE_IMAGE = "bed.local/pause:1"


@dataclass(frozen=True)
class Machine:
    """What the cluster has to know of the machine that it runs on."""

    programs: str
    """Where the hosts see the cluster's programs."""
    cgroup_version: int
    may_raise_limits: bool
    """CAP_SYS_RESOURCE: without it no process can be made less likely to be killed when memory is short."""


@dataclass(frozen=True)
class File:
    """A file of a host."""

    path: str
    content: str | bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Setup:
    """What a host of the cluster is made of: its files, then its daemons in the order in which they start."""

    files: tuple[File, ...]
    daemons: tuple[Daemon, ...]


def control_plane_host(plan: Plan) -> HostSpec:
    return plan.of_role(Role.CONTROL_PLANE)[0]


def api_url(plan: Plan) -> str:
    return f"https://{control_plane_host(plan).address}:{API_PORT}"


def flags(values: Flags) -> tuple[str, ...]:
    """As Kubernetes' programs take them: `--name=value`."""
    return tuple(f"--{name}={_flag_value(value)}" for name, value in values.items())


def _flag_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def identities(plan: Plan) -> tuple[Identity, ...]:
    """Everybody who holds a certificate in this cluster."""
    control_plane = control_plane_host(plan)
    nodes = tuple(identity for spec in plan.of_role(Role.NODE) for identity in _node_identities(spec))
    return (*_control_plane_identities(control_plane), *nodes)


def _control_plane_identities(spec: HostSpec) -> tuple[Identity, ...]:
    service = "kubernetes.default.svc"
    names = ("kubernetes", "kubernetes.default", service, f"{service}.cluster.local")
    return (
        Identity("etcd", "etcd", "etcd", addresses=("127.0.0.1",), usages=("server", "client")),
        Identity("apiserver-etcd", "etcd", "kube-apiserver"),
        Identity(
            "apiserver",
            "kubernetes",
            "kube-apiserver",
            dns_names=(*names, "localhost", spec.name),
            # 127.0.0.1: the machine reaches the API server by a forwarded loopback port.
            addresses=("127.0.0.1", KUBERNETES_SERVICE, spec.address),
            usages=("server",),
        ),
        Identity("apiserver-kubelet", "kubernetes", "kube-apiserver", organization=KUBELET_ADMINISTRATORS),
        Identity("front-proxy", "front-proxy", "front-proxy-client"),
        Identity("controller-manager", "kubernetes", "system:kube-controller-manager"),
        Identity("scheduler", "kubernetes", "system:kube-scheduler"),
        Identity("proxy", "kubernetes", "system:kube-proxy"),
        Identity("admin", "kubernetes", "admin", organization="system:masters"),
    )


def _node_identities(spec: HostSpec) -> tuple[Identity, ...]:
    node = f"system:node:{spec.name}"
    return (
        Identity(f"kubelet-{spec.name}", "kubernetes", node, organization="system:nodes"),
        Identity(
            f"kubelet-{spec.name}-serving",
            "kubernetes",
            node,
            organization="system:nodes",
            dns_names=(spec.name,),
            addresses=(spec.address,),
            usages=("server",),
        ),
    )


def kubeconfig(server: str, user: str, pki: Mapping[str, bytes]) -> str:
    """A kubeconfig that holds all it needs; `pki` is the files of the PKI by name."""
    cluster = {"server": server, "certificate-authority-data": _encoded(pki["kubernetes-ca.crt"])}
    credentials = {
        "client-certificate-data": _encoded(pki[f"{user}.crt"]),
        "client-key-data": _encoded(pki[f"{user}.key"]),
    }
    return as_yaml(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bed", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": user}}],
            "current-context": "bed",
        }
    )


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def as_yaml(*documents: object) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)
