"""kubectl with logs, files and ports, compared with a stub kubelet.

The stub is a kubelet in Go that serves the same job without Red Box: the log from its file, and an srun for
each command and connection.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from redbox_bed.hosts.host import Host
from tests.bench.bench_kubernetes import LINE, drain
from tests.bench.bench_pods import Sides
from tests.bench.bench_sessions import with_sessions
from tests.bench.bench_slurm import LOADS
from tests.bench.bench_slurmjobs import slurm_job
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.kubectl import Kubectl
from tests.bench.rows import Figure, Target
from tests.bench.stub_kubelet import stub_kubelet
from tests.bench.transfers import MB, PodFolder, forwarded, given_mb_s, made_folder, taken_mb_s

LOG_MB = sized(500, 60)
FOLDER_MB = sized(1000, 100)
FORWARD_MB = sized(1000, 100)
JOB = "bench-transfers"
PORT = 18890
WRITES_WITHIN_S = 120
STUB = "the stub"
THROUGH_SRUN = f"{STUB} through srun"
EQUAL = Target("ratio", ">=", 0.8)


@dataclass(frozen=True)
class Reached:
    """The job's pod by one of the two ways."""

    kubectl: Kubectl
    pod: str


@dataclass(frozen=True)
class BothWays:
    ours: Reached
    stub: Reached


@contextmanager
def both_ways(sides: Sides, log_mb: int = 0) -> Iterator[BothWays]:
    """One job, reached by Red Box and by the stub; a command has run by either."""
    alice, login = sides.alice, sides.bed.host("login")
    lines = log_mb * MB // len(LINE)
    program = (LOADS / "transfer_job.py").read_text()
    alice.apply(slurm_job(JOB, f"exec python3 - {PORT} {lines} <<'END'\n{program}\nEND"))
    try:
        alice.run("wait", f"slurmjob/{JOB}", "--for=jsonpath={.status.phase}=Running", "--timeout=50s")
        job_id = alice.run("get", "slurmjob", JOB, "--output=jsonpath={.status.jobID}")
        log = log_path(login.run("scontrol", "show", "job", job_id).stdout)
        wait_for_size(login, log, lines * len(LINE))
        with stub_kubelet(sides.bed, sides.native, job_id=job_id, log=log) as stub:
            ways = BothWays(Reached(alice, f"{JOB}-job"), Reached(sides.native, stub))
            for way in (ways.ours, ways.stub):
                way.kubectl.run("exec", way.pod, "--", "true")
            yield ways
    finally:
        alice.run("delete", "slurmjob", JOB)


def log_path(shown: str) -> str:
    """Where the job's output is, as `scontrol show job` says."""
    found = re.search(r"^\s*StdOut=(.+)$", shown, re.MULTILINE)
    if found is None:
        raise RuntimeError("scontrol does not show where the output of the job is")
    return found[1]


def wait_for_size(host: Host, path: str, size: int) -> None:
    deadline = time.monotonic() + WRITES_WITHIN_S
    while int(host.run("stat", "--format=%s", path, check=False).stdout or -1) < size:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} does not have {size} bytes after {WRITES_WITHIN_S} s")
        time.sleep(0.5)


@benchmark(
    Figure(
        "log-beside-stub",
        f"kubectl logs of a SlurmJob with {LOG_MB} MB",
        "MB/s",
        Target("ratio", ">=", 0.9),
    ),
    takes_s=120,
    short_s=20,
    rounds=3,
    warm_up=False,
    baseline_name=f"{STUB}: the file",
    within=with_sessions,
)
@contextmanager
def log_beside_stub(sides: Sides) -> Iterator[Trial]:
    with both_ways(sides, LOG_MB) as ways:
        yield Trial(lambda: log_mb_s(ways.ours), lambda: log_mb_s(ways.stub))


def log_mb_s(way: Reached) -> Mapping[str, float]:
    with way.kubectl.reading("logs", way.pod) as reader:
        assert reader.stdout is not None
        received, took = drain(reader.stdout.fileno())
    if received != LOG_MB * MB:
        raise RuntimeError(f"{received} bytes came of a log of {LOG_MB} MB")
    return {"log-beside-stub": received / MB / took}


@benchmark(
    Figure("session-copy-in", f"kubectl cp of a folder of {FOLDER_MB} MB into a job", "MB/s", EQUAL),
    Figure("session-copy-out", "the same folder out of the job", "MB/s", EQUAL),
    Figure("session-tar-in", "the same into it by tar and kubectl exec", "MB/s", EQUAL),
    Figure("session-tar-out", "the same out of it", "MB/s", EQUAL),
    takes_s=500,
    short_s=40,
    rounds=2,
    warm_up=False,
    baseline_name=THROUGH_SRUN,
    within=with_sessions,
)
@contextmanager
def session_copies(sides: Sides) -> Iterator[Trial]:
    with both_ways(sides) as ways, TemporaryDirectory() as temporary:
        folder = made_folder(Path(temporary) / "sent", FOLDER_MB)
        yield Trial(lambda: copies(ways.ours, folder), lambda: copies(ways.stub, folder))


def copies(way: Reached, folder: Path) -> Mapping[str, float]:
    there = PodFolder(way.kubectl, way.pod, folder, f"/tmp/{JOB}-{way.pod}")
    copied = {f"session-copy-{where}": speed for where, speed in there.copied().items()}
    packed = {f"session-tar-{where}": speed for where, speed in there.packed().items()}
    return copied | packed


@benchmark(
    Figure(
        "session-forward-out", f"kubectl port-forward: a job's server sends {FORWARD_MB} MB", "MB/s", EQUAL
    ),
    Figure("session-forward-in", f"the same: it receives {FORWARD_MB} MB", "MB/s", EQUAL),
    takes_s=200,
    short_s=20,
    rounds=3,
    warm_up=False,
    baseline_name=f"{THROUGH_SRUN} and socat",
    within=with_sessions,
)
@contextmanager
def session_forwards(sides: Sides) -> Iterator[Trial]:
    with both_ways(sides) as ways:
        yield Trial(lambda: forwards(ways.ours), lambda: forwards(ways.stub))


def forwards(way: Reached) -> Mapping[str, float]:
    with forwarded(way.kubectl, way.pod, PORT) as port:
        return {
            "session-forward-out": given_mb_s(port, FORWARD_MB),
            "session-forward-in": taken_mb_s(port, FORWARD_MB),
        }
