"""resourced with 200 partitions."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, Target
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.resourced_process import CLUSTER, install, redbox_of, remove_all, slurm_cluster
from tests.e2e.harness.virtual_delivery import InBed, approve
from tests.e2e.harness.waiting import eventually

PARTITIONS = sized(200, 50)
BEDS_OWN = 3
IDLE_S = sized(60, 20)
THERE_WITHIN_S = 300
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def many_partitions(login: Host) -> Iterator[None]:
    """So many that the bed's own make them 200."""
    names = " ".join(f"many{number}" for number in range(PARTITIONS - BEDS_OWN))
    each = f"for name in {names}; do scontrol"
    login.run("sh", "-c", f"{each} create partition=$name nodes=n1 maxtime=60; done", timeout=120)
    try:
        yield
    finally:
        login.run("sh", "-c", f"{each} delete partition=$name; done", timeout=120)


def ready_nodes(kubernetes: Kubernetes) -> int:
    conditions = 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\\n"}{end}'
    return kubernetes("get", "nodes", "--selector=redbox.dev/virtual", "-o", conditions).split().count("True")


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@benchmark(
    Figure("virtual-nodes-ready", f"{PARTITIONS} virtual nodes Ready", "s"),
    Figure("virtual-nodes-memory", "resident memory", "MiB", Target("value", "<=", 300)),
    Figure(
        "virtual-nodes-idle-cpu",
        "idle CPU, of one core",
        "%",
        Target("value", "<=", 5),
    ),
    takes_s=270,
    rounds=1,
)
@contextmanager
def virtual_nodes(bed: Bed) -> Iterator[Trial]:
    kubernetes = Kubernetes(bed)
    install(bed, kubernetes)
    with (
        many_partitions(bed.host("login")),
        redbox_of(bed, kubernetes) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        # A certificate is requested only once a SlurmCluster wants virtual nodes; at its start none does.
        resourced = InBed(bed, Path(folder), [f"--most-nodes={PARTITIONS}"], has_virtual_nodes=False)

        def measure() -> Mapping[str, float]:
            remove_all(kubernetes, [CLUSTER])
            resourced.start()
            try:
                begun = time.perf_counter()
                kubernetes.apply(slurm_cluster(server, delivery="Virtual"))
                eventually(lambda: ready_nodes(kubernetes) == PARTITIONS, within_s=THERE_WITHIN_S)
                ready = time.perf_counter() - begun
                approve(kubernetes)
                time.sleep(IDLE_S / 2)  # until Kubernetes, too, has done with them
                before = cpu_seconds(resourced.pid)
                time.sleep(IDLE_S)
                busy = cpu_seconds(resourced.pid) - before
                return {
                    "virtual-nodes-ready": ready,
                    "virtual-nodes-memory": resident_mib(resourced.pid),
                    "virtual-nodes-idle-cpu": 100 * busy / IDLE_S,
                }
            finally:
                resourced.stop()
                remove_all(kubernetes, [CLUSTER])

        yield Trial(measure, notes={"partitions": PARTITIONS, "idle_s": IDLE_S})
