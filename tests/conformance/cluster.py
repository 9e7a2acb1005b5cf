"""The bed as Kubernetes' suite needs it: pods of its namespaces are led to a virtual node and run as alice.

What the administrators of both sides would set is set here: nothing of it changes what a case asks for.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from redbox_bed.delivery import SLURM_CLUSTER
from redbox_bed.prepare.walkthrough import allow_sessions_and_volumes
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_settings import change_settings, put_rule_first
from tests.e2e.harness.slurm_pods import VALUES, upgrade, wait_until_served

ADMISSION = Path(__file__).with_name("admission.yaml")
PARTITION = "long"
"""Without a limit: a case may take longer than jobs of the default partition."""
RULE = {"cluster": "bed", "namespaces": "^[a-z0-9-]+-[0-9]+$", "user": "alice", "roles": ["submit"]}
"""Of red-box's mapping: the namespaces of the suite have random numbers."""
PODS = f"slurmClusters.{SLURM_CLUSTER}.pods"
ON = f"{PODS}.enabled=true,{PODS}.users=map,{PODS}.routed=true"
STORAGE_CLASS = "redbox-directory"
DEFAULT_CLASS = {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}


def prepare(bed: Bed) -> None:
    """Again, it does what is missing."""
    login, kubernetes = bed.host("login"), Kubernetes(bed)
    allow_sessions_and_volumes(login)
    change_settings(login, _map_namespaces)
    _prepare_slurm(bed)
    upgrade(bed, VALUES, ON)
    wait_until_served(kubernetes)
    kubernetes.apply(ADMISSION.read_text())
    kubernetes.patch("storageclass", STORAGE_CLASS, DEFAULT_CLASS)


def slurm_nodes(bed: Bed) -> list[str]:
    return [node.name for node in bed.plan.slurm_cluster(SLURM_CLUSTER).nodes]


def _map_namespaces(settings: dict[str, object]) -> None:
    if RULE not in settings["mapping"]["rules"]:  # type: ignore[index]
        put_rule_first(settings, RULE)


def _prepare_slurm(bed: Bed) -> None:
    """Replicas with one port get a node each, as far as there are any, and users may serve on port 80."""
    bed.host("ctl").run("scontrol", "update", f"PartitionName={PARTITION}", "LLN=YES")
    for spec in bed.plan.of_role(Role.COMPUTE):
        bed.host(spec.name).run("sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=0")
