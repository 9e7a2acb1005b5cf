"""A node's host: containerd, kubelet, kube-proxy, and the network of its pods. Pure.

Pods keep their own address on the way out (no NAT): the switch routes each node's pod network to the node.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping

from redbox_bed.core.plan import HostSpec, Plan
from redbox_bed.hosts.host import Daemon
from redbox_bed.kube.conf import (
    CLUSTER_DOMAIN,
    CONFIGURATION,
    DNS_SERVICE,
    PAUSE_IMAGE,
    POD_NETWORK,
    File,
    Machine,
    Setup,
    api_url,
    as_yaml,
    kubeconfig,
)

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
_CNI = f"{CONFIGURATION}/cni"
_PKI = f"{CONFIGURATION}/pki"


def node(
    plan: Plan, spec: HostSpec, machine: Machine, pki: Mapping[str, bytes], *, has_dns: bool = False
) -> Setup:
    """Files and daemons of one node; `has_dns` if the cluster has a DNS of its own."""
    identity = f"kubelet-{spec.name}"
    return Setup(
        files=(
            File(f"{_PKI}/kubernetes-ca.crt", pki["kubernetes-ca.crt"]),
            File(f"{_PKI}/kubelet.crt", pki[f"{identity}-serving.crt"]),
            File(f"{_PKI}/kubelet.key", pki[f"{identity}-serving.key"], 0o600),
            File(f"{CONFIGURATION}/kubelet.conf", kubeconfig(api_url(plan), identity, pki), 0o600),
            File(f"{CONFIGURATION}/proxy.conf", kubeconfig(api_url(plan), "proxy", pki), 0o600),
            File(f"{CONFIGURATION}/containerd.toml", _containerd(machine)),
            File(f"{CONFIGURATION}/kubelet.yaml", _kubelet(machine, has_dns=has_dns)),
            File(f"{CONFIGURATION}/proxy.yaml", _proxy(spec)),
            File(f"{_CNI}/10-pods.conflist", _pod_network(spec)),
        ),
        daemons=(
            Daemon("containerd", ("containerd", "--config", f"{CONFIGURATION}/containerd.toml")),
            Daemon(
                "kubelet",
                (
                    f"{machine.programs}/kubelet",
                    f"--config={CONFIGURATION}/kubelet.yaml",
                    f"--kubeconfig={CONFIGURATION}/kubelet.conf",
                    f"--node-ip={spec.address}",
                ),
            ),
            Daemon("kube-proxy", (f"{machine.programs}/kube-proxy", f"--config={CONFIGURATION}/proxy.yaml")),
        ),
    )


def _containerd(machine: Machine) -> str:
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = {json.dumps(not machine.may_raise_limits)}
  disable_apparmor = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{_CNI}"
"""


def _kubelet(machine: Machine, *, has_dns: bool) -> str:
    configuration: dict[str, object] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{_PKI}/kubernetes-ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{_PKI}/kubelet.crt",
        "tlsPrivateKeyFile": f"{_PKI}/kubelet.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        # The machine's disk is shared with all else on it: how full it is must not evict pods or images.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    }
    if has_dns:
        configuration |= {"clusterDNS": [DNS_SERVICE], "clusterDomain": CLUSTER_DOMAIN}
    gates = {}
    if machine.cgroup_version == 1:
        configuration |= {"failCgroupV1": False, "cgroupsPerQOS": False, "enforceNodeAllocatable": []}
        # Without a group for each pod kubelet 1.34.4 ends (nil pointer in doPodResizeAction) at a pod whose
        # container does not have its memory limit yet.
        gates["InPlacePodVerticalScaling"] = False
    if not machine.may_raise_limits:
        gates["KubeletInUserNamespace"] = True
    return as_yaml(configuration | ({"featureGates": gates} if gates else {}))


def _proxy(spec: HostSpec) -> str:
    return as_yaml(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": f"{CONFIGURATION}/proxy.conf"},
            "hostnameOverride": spec.name,
            "clusterCIDR": POD_NETWORK,
            "mode": "iptables",
            # The table's size belongs to the machine, not to a network namespace.
            "conntrack": {"maxPerCore": 0, "min": 0},
        }
    )


def _pod_network(spec: HostSpec) -> str:
    network = ipaddress.ip_network(spec.pod_network or "")
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            # In /run: after a power cut no address is taken.
            "dataDir": "/run/cni/addresses",
            "ranges": [[{"subnet": str(network)}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    port_mappings = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, port_mappings]}, indent=1)
