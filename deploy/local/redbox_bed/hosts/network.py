"""The bed's network: a bridge in the switch's network namespace, a cable (veth pair) to each host.

The texts of the scripts are pure; `ensure_…` runs them. Pod networks are routed by the switch, no NAT:
every host reaches every pod and a pod is seen under its own address.
"""

from __future__ import annotations

import subprocess

from redbox_bed.core.errors import HostError
from redbox_bed.core.plan import NETWORK, HostSpec, Plan

BRIDGE = "bed0"
_SECONDS = 120


def hosts_file(plan: Plan) -> str:
    """/etc/hosts of every host."""
    lines = ["127.0.0.1 localhost", *(f"{spec.address} {spec.name}" for spec in plan.hosts)]
    return "\n".join(lines) + "\n"


def switch_script(plan: Plan) -> str:
    """Makes the bridge and the routes to pods, for the switch's namespace; may be run again at any time."""
    lines = [
        "set -e",
        f"ip link show {BRIDGE} >/dev/null 2>&1 || ip link add {BRIDGE} type bridge forward_delay 0",
        f"ip address replace {plan.switch.address}/24 dev {BRIDGE}",
        f"ip link set {BRIDGE} up",
        "echo 1 >/proc/sys/net/ipv4/ip_forward",
        # All hosts are neighbours: else the switch would teach them ways past itself, which outlive a pod.
        "for file in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 >$file; done",
    ]
    lines += [
        f"ip route replace {spec.pod_network} via {spec.address} dev {BRIDGE}"
        for spec in plan.hosts
        if spec.pod_network is not None
    ]
    return "\n".join(lines) + "\n"


def plug_script(spec: HostSpec, pid: int) -> str:
    """Lays the cable from the switch's end; `pid` is the host's."""
    return (
        f"ip link delete to-{spec.name} 2>/dev/null || :\n"
        f"ip link add to-{spec.name} type veth peer name eth0 netns {pid} && "
        f"ip link set to-{spec.name} master {BRIDGE} up\n"
    )


def socket_script(spec: HostSpec, gateway: str) -> str:
    """Configures the host's end of its cable."""
    return (
        f"set -e\nip address add {spec.address}/24 dev eth0\nip link set eth0 up\n"
        f"ip route add default via {gateway}\n"
    )


def ensure_switch(plan: Plan, switch: int) -> None:
    # The switch's own /proc is needed for its sysctls: so its mounts, too.
    _run(switch, switch_script(plan), "--mount")


def ensure_cable(plan: Plan, spec: HostSpec, switch: int, pid: int) -> None:
    """Plug the host in, with a new cable unless a whole one is there."""
    whole = _succeeds(switch, f"ip link set to-{spec.name} up") and _succeeds(
        pid, f"ip route get {NETWORK}.1"
    )
    if not whole:
        _succeeds(pid, "ip link delete eth0")
        _run(switch, plug_script(spec, pid))
        _run(pid, socket_script(spec, plan.switch.address))


def set_link(spec: HostSpec, switch: int, *, up: bool) -> None:
    _run(switch, f"ip link set to-{spec.name} {'up' if up else 'down'}")


def link_is_up(spec: HostSpec, switch: int) -> bool:
    return _succeeds(switch, f"ip -o link show to-{spec.name} up | grep -q .")


def _inside(pid: int, script: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["nsenter", "--target", str(pid), "--net", *more, "--", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        cwd="/",
    )


def _succeeds(pid: int, script: str) -> bool:
    return _inside(pid, script).returncode == 0


def _run(pid: int, script: str, *more: str) -> None:
    done = _inside(pid, script, *more)
    if done.returncode != 0:
        raise HostError(f"the network of process {pid} cannot be set up: {done.stderr.strip()}")
