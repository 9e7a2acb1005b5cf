"""The control plane's host: etcd, API server, controller manager, scheduler, and the roles they need. Pure.

As a production cluster has it: TLS everywhere, RBAC and the Node authorizer, no anonymous requests but for
the paths named here, an audit log of every request's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

from redbox_bed.core.plan import Plan
from redbox_bed.hosts.host import Daemon
from redbox_bed.kube.conf import (
    API_PORT,
    CONFIGURATION,
    KUBELET_ADMINISTRATORS,
    POD_NETWORK,
    SERVICE_NETWORK,
    TOKEN_ISSUER,
    File,
    Flags,
    Machine,
    Setup,
    api_url,
    as_yaml,
    control_plane_host,
    flags,
    kubeconfig,
)

AUDIT_LOG = "/var/log/kubernetes/audit.log"
Program = tuple[str, Flags]
"""A program's name and its flags."""
_PKI = f"{CONFIGURATION}/pki"
_MUTATING_POLICIES: Flags = {
    "feature-gates": "MutatingAdmissionPolicy=true",
    "runtime-config": "admissionregistration.k8s.io/v1beta1=true",
}
_ANONYMOUS_PATHS = (
    "/livez",
    "/readyz",
    "/healthz",
    # The public keys of the tokens, for those who verify them offline.
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
)
_FILES_OF_PKI = (
    *("kubernetes-ca.crt", "kubernetes-ca.key", "front-proxy-ca.crt", "etcd-ca.crt"),
    *("etcd.crt", "etcd.key", "apiserver-etcd.crt", "apiserver-etcd.key"),
    *("apiserver.crt", "apiserver.key", "apiserver-kubelet.crt", "apiserver-kubelet.key"),
    *("front-proxy.crt", "front-proxy.key", "service-accounts.key", "service-accounts.pub"),
)


def control_plane(plan: Plan, machine: Machine, pki: Mapping[str, bytes]) -> Setup:
    """Files and daemons of the control plane's host."""
    users = ("controller-manager", "scheduler", "admin")
    kubeconfigs = {f"{user}.conf": kubeconfig(api_url(plan), user, pki) for user in users}
    daemons = (_etcd(), _api_server(plan), _controller_manager(), _scheduler())
    return Setup(
        files=(
            *(File(f"{_PKI}/{name}", pki[name], 0o600) for name in _FILES_OF_PKI),
            *(File(f"{CONFIGURATION}/{name}", content, 0o600) for name, content in kubeconfigs.items()),
            File(f"{CONFIGURATION}/authentication.yaml", _authentication()),
            File(f"{CONFIGURATION}/audit-policy.yaml", _audit_policy()),
        ),
        daemons=tuple(
            Daemon(name, (f"{machine.programs}/{name}", *flags(values))) for name, values in daemons
        ),
    )


def _authentication() -> str:
    return as_yaml(
        {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "anonymous": {"enabled": True, "conditions": [{"path": path} for path in _ANONYMOUS_PATHS]},
        }
    )


def _audit_policy() -> str:
    return as_yaml(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
    )


def _etcd() -> Program:
    client, peer = "https://127.0.0.1:2379", "https://127.0.0.1:2380"
    files = {"cert-file": "etcd.crt", "key-file": "etcd.key", "trusted-ca-file": "etcd-ca.crt"}
    pair = {name: f"{_PKI}/{file}" for name, file in files.items()}
    values: Flags = {
        "name": "bed",
        "data-dir": "/var/lib/etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "client-cert-auth": True,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"bed={peer}",
        "peer-client-cert-auth": True,
        **pair,
        **{f"peer-{name}": file for name, file in pair.items()},
    }
    return "etcd", values


def _api_server(plan: Plan) -> Program:
    values: Flags = {
        "advertise-address": control_plane_host(plan).address,
        "secure-port": API_PORT,
        "service-cluster-ip-range": SERVICE_NETWORK,
        "allow-privileged": True,
        "profiling": False,
        **_storage_flags(),
        **_serving_flags(),
        **_access_flags(),
        **_token_flags(),
        **_kubelet_flags(),
        **_aggregation_flags(),
        **(_MUTATING_POLICIES if plan.options.mutating_policies else {}),
        "audit-policy-file": f"{CONFIGURATION}/audit-policy.yaml",
        "audit-log-path": AUDIT_LOG,
        "audit-log-maxsize": 200,
        "audit-log-maxbackup": 2,
    }
    return "kube-apiserver", values


def _storage_flags() -> Flags:
    return {
        "etcd-servers": "https://127.0.0.1:2379",
        "etcd-cafile": f"{_PKI}/etcd-ca.crt",
        "etcd-certfile": f"{_PKI}/apiserver-etcd.crt",
        "etcd-keyfile": f"{_PKI}/apiserver-etcd.key",
    }


def _serving_flags() -> Flags:
    return {
        "tls-cert-file": f"{_PKI}/apiserver.crt",
        "tls-private-key-file": f"{_PKI}/apiserver.key",
        "client-ca-file": f"{_PKI}/kubernetes-ca.crt",
    }


def _access_flags() -> Flags:
    return {
        "authentication-config": f"{CONFIGURATION}/authentication.yaml",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
    }


def _token_flags() -> Flags:
    return {
        "service-account-issuer": TOKEN_ISSUER,
        "api-audiences": TOKEN_ISSUER,
        "service-account-key-file": f"{_PKI}/service-accounts.pub",
        "service-account-signing-key-file": f"{_PKI}/service-accounts.key",
    }


def _kubelet_flags() -> Flags:
    return {
        "kubelet-certificate-authority": f"{_PKI}/kubernetes-ca.crt",
        "kubelet-client-certificate": f"{_PKI}/apiserver-kubelet.crt",
        "kubelet-client-key": f"{_PKI}/apiserver-kubelet.key",
        "kubelet-preferred-address-types": "InternalIP",
    }


def _aggregation_flags() -> Flags:
    return {
        "requestheader-client-ca-file": f"{_PKI}/front-proxy-ca.crt",
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": f"{_PKI}/front-proxy.crt",
        "proxy-client-key-file": f"{_PKI}/front-proxy.key",
        # No kube-proxy on this host: webhooks and aggregated APIs are reached at their pods' addresses.
        "enable-aggregator-routing": True,
    }


def _client_flags(user: str) -> Flags:
    configuration = f"{CONFIGURATION}/{user}.conf"
    return {
        "kubeconfig": configuration,
        "authentication-kubeconfig": configuration,
        "authorization-kubeconfig": configuration,
        "bind-address": "127.0.0.1",
        # There is one of each: after a kill the next need not wait for the lease of the dead.
        "leader-elect": False,
        "profiling": False,
    }


def _controller_manager() -> Program:
    values: Flags = {
        **_client_flags("controller-manager"),
        "use-service-account-credentials": True,
        "service-account-private-key-file": f"{_PKI}/service-accounts.key",
        "root-ca-file": f"{_PKI}/kubernetes-ca.crt",
        "cluster-signing-cert-file": f"{_PKI}/kubernetes-ca.crt",
        "cluster-signing-key-file": f"{_PKI}/kubernetes-ca.key",
        "requestheader-client-ca-file": f"{_PKI}/front-proxy-ca.crt",
        "service-cluster-ip-range": SERVICE_NETWORK,
        "cluster-cidr": POD_NETWORK,
        # Each node's pod network is fixed in the plan, since the switch has the routes to them.
        "allocate-node-cidrs": False,
    }
    return "kube-controller-manager", values


def _scheduler() -> Program:
    return "kube-scheduler", _client_flags("scheduler")


def roles() -> str:
    """What a new cluster lacks: who may use the kubelets' API, proxy, read the tokens' public keys."""
    discovery = "system:service-account-issuer-discovery"
    return as_yaml(
        _binding("bed:kubelet-administrators", "system:kubelet-api-admin", "Group", KUBELET_ADMINISTRATORS),
        _binding("bed:node-proxier", "system:node-proxier", "User", "system:kube-proxy"),
        _binding("bed:issuer-discovery", discovery, "Group", "system:unauthenticated"),
    )


def _binding(name: str, role: str, kind: str, subject: str) -> dict[str, object]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": kind, "name": subject}],
    }
