"""The Kubernetes half of the bed: a control plane and two nodes, made right and judged Ready.

Looks first and starts only what is missing, so that it is also the repair. The programs' arguments and files
are in `control_plane` and `node`, their build is in `programs.kubernetes`, their images in `images`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.core.part_status import PartStatus
from redbox_bed.core.plan import Role, Source
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import CACHE
from redbox_bed.images.node_images import busybox_image, import_missing, pause_image
from redbox_bed.images.project_images import project_images
from redbox_bed.images.unpacked import keep_unpacked
from redbox_bed.kube import existing
from redbox_bed.kube.conf import AUTHORITIES, Machine, control_plane_host, identities, kubeconfig
from redbox_bed.kube.control_plane import control_plane
from redbox_bed.kube.daemons import start_control_plane, start_node, wait_for_nodes
from redbox_bed.kube.node import node
from redbox_bed.kube.pki import ensure_pki
from redbox_bed.programs.kubernetes import ensure_programs

_CAP_SYS_RESOURCE = 24
DAEMONS = {
    Role.CONTROL_PLANE: ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    Role.NODE: ("containerd", "kubelet", "kube-proxy"),
}
"""By role of the host, in the order in which they start."""


def up(bed: Bed, progress: Progress) -> None:
    """Make it right: every daemon runs, every node is Ready, every image is there."""
    if bed.plan.options.kube is Source.EXISTING:
        existing.adopt(bed.places, progress)
        return
    programs = ensure_programs(bed.places, progress)
    pki = _pki(bed)
    machine = _machine(bed, programs)
    control_host = bed.host(control_plane_host(bed.plan).name)
    nodes = [bed.host(spec.name) for spec in bed.plan.of_role(Role.NODE)]
    with ThreadPoolExecutor(max_workers=2 + len(nodes)) as pool:
        # Beside the rest and asked for last: code that does not compile must not keep the cluster down.
        ours = pool.submit(project_images, bed.places, progress)
        with progress.step("Kubernetes' daemons"):
            setup = control_plane(bed.plan, machine, pki)
            control = pool.submit(start_control_plane, control_host, setup, machine.programs)
            needed = (pause_image(bed.places, programs), busybox_image(bed.places))
            setups = [node(bed.plan, host.spec, machine, pki, has_dns=has_dns(bed)) for host in nodes]
            starts = [
                pool.submit(start_node, *each, bed.places, needed) for each in zip(nodes, setups, strict=True)
            ]
            control.result()
            started = {host.name: start.result() for host, start in zip(nodes, starts, strict=True)}
        _leave_access(bed, programs, pki)
        with progress.step("Kubernetes' nodes"):
            wait_for_nodes(control_host, machine.programs, started)
        with progress.step("the project's images"):
            images = ours.result()
            list(pool.map(lambda host: import_missing(host, images), nodes))
            keep_unpacked(nodes[0], bed.places, images)


def status(bed: Bed) -> list[PartStatus]:
    """A line for each daemon."""
    if bed.plan.options.kube is Source.EXISTING:
        return []
    return [
        PartStatus(name, spec.name, bed.host(spec.name).running(name), "")
        for spec in bed.plan.kube_hosts
        for name in DAEMONS[spec.role]
    ]


def has_dns(bed: Bed) -> bool:
    """Whether kubelets give pods the address of the cluster's own DNS: `cluster_dns` has it added."""
    return _dns_mark(bed).exists()


def add_dns(bed: Bed) -> None:
    """For the next `up`."""
    _dns_mark(bed).touch()


def _dns_mark(bed: Bed) -> Path:
    return bed.places.state / "kube" / "dns"


# ------------------------------------------------------------------- keys, and what the machine allows
def _pki(bed: Bed) -> dict[str, bytes]:
    folder = bed.places.state / "kube" / "pki"
    ensure_pki(folder, AUTHORITIES, identities(bed.plan), dt.datetime.now(dt.UTC))
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def _machine(bed: Bed, programs: Path) -> Machine:
    version = 2 if bed.cgroups.description == "v2" else 1
    seen_by_hosts = programs_seen_by_hosts(bed, programs)
    return Machine(seen_by_hosts, version, may_raise_limits(Path("/proc/self/status").read_text()))


def programs_seen_by_hosts(bed: Bed, programs: Path) -> str:
    return f"{CACHE}/{programs.relative_to(bed.places.cache)}"


def may_raise_limits(process_status: str) -> bool:
    """Whether a process, by its /proc/PID/status, has CAP_SYS_RESOURCE."""
    for line in process_status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_RESOURCE & 1)
    return False


def _leave_access(bed: Bed, programs: Path, pki: Mapping[str, bytes]) -> None:
    """For people and tests: kubectl, and an administrator's kubeconfig for the forwarded port."""
    control_plane_name = control_plane_host(bed.plan).name
    port = next(forward.port for forward in bed.plan.forwards if forward.host == control_plane_name)
    bed.places.kubeconfig.touch(mode=0o600)
    bed.places.kubeconfig.write_text(kubeconfig(f"https://127.0.0.1:{port}", "admin", pki))
    existing.link_program(bed.places, programs / "kubectl")
