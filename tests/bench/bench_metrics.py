"""A scrape of Slurm's metrics.

squeue and scontrol are simulated, and their CPU is not included.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redbox.core.gauges import MetricFamily
from redbox.http.slurm_exposition import exposition_of
from redbox.slurm.commands import counted_jobs, counted_nodes, squeue
from redbox.slurm.metrics.job_gauges import QueueCounts, job_gauges, user_and_account_gauges
from redbox.slurm.metrics.node_gauges import node_gauges, partition_gauges
from redbox.slurm.text.record_format import ParseReport, RecordFormat
from redbox.slurm.views.queue_jobs import build_queue_jobs
from redbox_bed.bed import Bed
from tests.bench.benchmark import Trial, benchmark
from tests.bench.rows import Figure

JOBS, NODES, PARTITIONS, USERS, ACCOUNTS = 10_000, 500, 10, 200, 40
RUNNING_EVERY = 5
MOST = 2000
COUNTED = RecordFormat.new(counted_jobs.FIELDS)
POLLED = RecordFormat.new(squeue.FIELDS)
NODE = (
    "NodeName=n{number} Arch=x86_64 CoresPerSocket=32 CPUAlloc=16 CPUEfctv=64 CPUTot=64 CPULoad=15.90 "
    "AvailableFeatures=cpu ActiveFeatures=cpu Gres=gpu:a100:4 GresUsed=gpu:a100:1(IDX:0) NodeAddr=n{number} "
    "NodeHostName=n{number} Version=24.11.5 OS=Linux 6.1.0 #1 SMP Debian RealMemory=256000 AllocMem=64000 "
    "FreeMem=120000 Sockets=2 Boards=1 State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "
    "Partitions=p{partition} BootTime=2026-11-01T00:00:00 CfgTRES=cpu=64,mem=256000M AllocTRES=cpu=16"
)


def record(fields: tuple[str, ...], values: dict[str, str]) -> list[str]:
    return [values.get(name, "N/A") for name in fields]


def output(record_format: RecordFormat) -> str:
    """squeue's, of the same jobs by either list of fields."""
    lines = []
    for number in range(JOBS):
        runs = number % RUNNING_EVERY == 0
        values = {
            "JobID": str(number + 1),
            "ArrayJobID": str(number + 1),
            "HetJobID": "0",
            "UserID": str(2000 + number % USERS),
            "UserName": f"user{number % USERS}",
            "Account": f"account{number % ACCOUNTS}",
            "Partition": f"p{number % PARTITIONS}",
            "State": "RUNNING" if runs else "PENDING",
            "Reason": "None" if runs else "Priority",
            "exit_code": "0:0",
            "RestartCnt": "0",
            "NumNodes": "1",
            "MaxNodes": "1",
            "tres-alloc": "cpu=8,mem=32G,node=1,billing=8,gres/gpu=1" if runs else "N/A",
            "NodeList": f"n{number % NODES}" if runs else "",
            "SubmitTime": "1795550000",
            "Name": f"a name of job {number}",
            "WorkDir": f"/home/user{number % USERS}/work/{number}",
            "STDOUT": f"/home/user{number % USERS}/work/{number}/slurm-{number}.out",
        }
        lines.append(record_format.field_end.join(record(record_format.fields, values)))
    return "".join(f"{line}{record_format.record_end}\n" for line in lines)


def milliseconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


@benchmark(
    Figure("metrics-scrape-cpu", "CPU of one scrape, 10,000 jobs and 500 nodes", "ms"),
    takes_s=15,
    rounds=10,
    baseline_name="red-box's first poll of these jobs",
)
@contextmanager
def metrics_scrape(bed: Bed) -> Iterator[Trial]:
    del bed
    counted, polled = output(COUNTED), output(POLLED)
    nodes_text = "\n".join(
        NODE.format(number=number, partition=number % PARTITIONS) for number in range(NODES)
    )

    def scrape() -> None:
        jobs = QueueCounts.of(Counter(counted_jobs.read_jobs(counted, COUNTED, ParseReport())))
        nodes = list(counted_nodes.read_nodes(nodes_text, ParseReport()))
        names = [f"p{number}" for number in range(PARTITIONS)]
        by_name = {node.name: node for node in nodes}
        exposition_of(MetricFamily.JOBS, job_gauges(jobs.cluster))
        exposition_of(MetricFamily.NODES, node_gauges(by_name, MOST))
        exposition_of(MetricFamily.PARTITIONS, partition_gauges(names, nodes, jobs.partitions, MOST))
        exposition_of(MetricFamily.USERS_ACCOUNTS, user_and_account_gauges(jobs, MOST))

    def poll() -> None:
        found, _ = build_queue_jobs(squeue.read_rows(polled, POLLED, ParseReport()))
        assert len(found) == JOBS

    yield Trial(
        lambda: {"metrics-scrape-cpu": milliseconds(scrape)},
        lambda: {"metrics-scrape-cpu": milliseconds(poll)},
        notes={"jobs": JOBS, "nodes": NODES, "users": USERS, "accounts": ACCOUNTS, "partitions": PARTITIONS},
    )
