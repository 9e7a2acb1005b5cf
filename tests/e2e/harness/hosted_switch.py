"""BED_SLURM=hosted: the core of the suites, on a Slurm in pods that deploy/chart-slurm has installed.

Its SlurmCluster has the name of the bed's own, hpc1, and its partition that of the bed's. What a test does on
the login host it does in the login pod. Tests that need more than a hosted cluster has are skipped, with the
reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import CompletedProcess, run
from typing import Any, cast

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import CommandError
from redbox_bed.delivery import SLURM_CLUSTER, Helm
from redbox_bed.hosts.host import Host
from tests.e2e.harness.chart_slurm import RELEASE, chart_slurm
from tests.e2e.harness.hosted_slurm import NAMESPACE, hosting
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.waiting import eventually

IS_HOSTED = os.environ.get("TEST_SLURM") == "hosted"
"""tests/run makes this of BED_SLURM: the bed itself has its own Slurm, as ever."""
SLURM_RELEASE = os.environ.get("TEST_SLURM_RELEASE", "26.05")
CORE = (
    "slurmjobs/test_life.py",
    "slurmjobs/test_data.py",
    "slurmjobs/test_bad_input.py",
    "slurmjobs/test_tenants.py",
)
"""Jobs, logs, cancel, arrays, results, refusals."""
CANNOT_HOLD = {
    "test_mpi_over_three_hosts": "the image of Slurm has no MPI",
    "test_a_container_runs_with_its_arguments_exactly": "the image of Slurm has no Apptainer",
    "test_two_clusters_with_a_partition_of_one_name_are_two": "it installs red-box on a login host",
    "test_a_job_uses_a_database_in_kubernetes_at_the_port_of_a_node": "pods reach the Service itself",
}
VIRTUAL = "resourced is not installed for the hosted cluster here"


@dataclass(frozen=True)
class LoginPod:
    """What tests use of the login host, in a pod."""

    kubernetes: Kubernetes
    name: str = f"{RELEASE}-login-0"

    def run(
        self,
        *argv: str,
        user: str = "root",
        stdin: str | None = None,
        check: bool = True,
        timeout: float = 60,
    ) -> CompletedProcess[str]:
        """As a user in the home directory."""
        home = "/root" if user == "root" else f"/home/{user}"
        become = () if user == "root" else ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")
        inside = ("env", f"HOME={home}", f"USER={user}", *become, "sh", "-c", 'cd; exec "$@"', "sh", *argv)
        place = ("exec", "--stdin", f"--namespace={NAMESPACE}", self.name, "--container=login", "--")
        command = self.kubernetes.command(*place, *inside)
        done = run(command, input=stdin or "", capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode:
            raise CommandError(self.name, argv, done.returncode, done.stdout, done.stderr)
        return done


@contextmanager
def hosted_in_place_of_the_beds(bed: Bed) -> Iterator[Host]:
    """The SlurmCluster hpc1 is a hosted one for as long as this lasts."""
    helm = Helm(bed)
    with hosting(bed, SLURM_RELEASE, database=True) as kubernetes:
        delivered: dict[str, Any] = json.loads(helm("get", "values", "red-box", "--output=json"))
        others = {name: spec for name, spec in delivered["slurmClusters"].items() if name != SLURM_CLUSTER}
        helm.install({**delivered, "slurmClusters": others})
        kind = "slurmclusters.redbox.dev"
        eventually(
            lambda: not kubernetes.get(kind, SLURM_CLUSTER), what=f"the end of SlurmCluster {SLURM_CLUSTER}"
        )
        try:
            with chart_slurm(bed, kubernetes, hosted_values()) as chart:
                chart.is_ready(SLURM_CLUSTER)
                yield cast("Host", LoginPod(kubernetes))
        finally:
            helm.install(delivered)


def hosted_values() -> dict[str, Any]:
    """As the bed's own Slurm: its partition, and a job starts in a second."""
    partition = {"name": "debug", "default": True, "maxTime": "1-00:00:00"}
    return {
        "controller": {"redbox": {"partitions": [partition]}},
        "redbox": {"slurmCluster": SLURM_CLUSTER},
        "nodeSets": {"cpu": {"replicas": 3}},
    }


def choose_core(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of all that was collected: the core, and the rest of it with the reason why it cannot hold."""
    core = [item for item in items if item.path.as_posix().endswith(CORE)]
    config.hook.pytest_deselected(items=[item for item in items if item not in core])
    items[:] = core
    for item in core:
        name = getattr(item, "originalname", item.name)
        parameters: Sequence[object] = getattr(getattr(item, "callspec", None), "params", {}).values()  # type: ignore[assignment]
        why = CANNOT_HOLD.get(name) or (VIRTUAL if "Virtual" in parameters else "")
        if why:
            item.add_marker(pytest.mark.skip(reason=why))
