"""The cluster's own DNS, where it is asked for: CoreDNS, and kubelets that give its address to new pods.

Only a Slurm that runs in pods needs it; without it a pod has the resolver of its node. A bed that has it
keeps it: `up` repairs it as it repairs the rest.
"""

from __future__ import annotations

from redbox_bed.bed import Bed
from redbox_bed.core.errors import DaemonError
from redbox_bed.core.plan import Role, Source
from redbox_bed.core.progress import Progress
from redbox_bed.images.node_images import coredns_image, import_missing
from redbox_bed.kube import kube_cluster
from redbox_bed.kube.conf import control_plane_host
from redbox_bed.kube.daemons import kubectl
from redbox_bed.programs.coredns import MODULE, ensure_coredns
from redbox_bed.programs.kubernetes import ensure_programs


def ensure_dns(bed: Bed, progress: Progress) -> None:
    """A pod that is created after this resolves the names of Services and of pods behind headless ones."""
    if bed.plan.options.kube is not Source.OWN:
        return  # a cluster of the user's has its own
    image = coredns_image(bed.places, ensure_coredns(bed.places, progress))
    for spec in bed.plan.of_role(Role.NODE):
        import_missing(bed.host(spec.name), [image])
    if not kube_cluster.has_dns(bed):
        kube_cluster.add_dns(bed)
        kube_cluster.up(bed, progress)
    with progress.step("the cluster's DNS"):
        _kubectl(bed, "apply", "--server-side", "--filename=-", stdin=(MODULE / "coredns.yaml").read_text())
        _kubectl(
            bed,
            *("--namespace=kube-system", "rollout", "status", "deployment/coredns"),
            "--timeout=50s",
        )


def _kubectl(bed: Bed, *arguments: str, stdin: str | None = None) -> None:
    programs = kube_cluster.programs_seen_by_hosts(bed, ensure_programs(bed.places, Progress.silent()))
    host = bed.host(control_plane_host(bed.plan).name)
    done = kubectl(host, programs, *arguments, stdin=stdin)
    if done.returncode:
        raise DaemonError(f"the cluster's DNS could not be started: {done.stderr.strip()}")
