"""Sessions in running jobs, compared with srun.

The first session of a job starts a relay by srun; later ones reuse it. kubectl's times include its own start,
TLS and one request.
"""

from __future__ import annotations

import os
import pty
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median

from redbox_bed.bed import Bed
from tests.bench.bench_pods import Sides, of_natives, standing
from tests.bench.bench_slurm import USER, on_login
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.kubectl import Kubectl
from tests.bench.pod_lives import NATIVE, ON_SLURM, SLURM_JOB, Kind
from tests.bench.rows import Figure, Target
from tests.bench.virtual_jobs import API
from tests.e2e.harness.sessions import sessions

FIRST = sized(8, 3)
NEXT = sized(30, 10)
KEYS = sized(100, 40)
MEGABYTES = 400
REQUESTS = sized(200, 60)
LASTS = "sleep 1200"
SRUN = "srun"
MIB = 2**20


@contextmanager
def with_sessions(bed: Bed) -> Iterator[Sides]:
    with standing(bed) as sides, sessions(bed.host("login"), enabled=True):
        yield sides


@contextmanager
def pods_of(sides: Sides, kind: Kind, count: int) -> Iterator[list[str]]:
    try:
        yield list(sides.see(kind, LASTS, count, "begun"))
    finally:
        sides.delete(kind)


def first_byte_ms(sides: Sides, kind: Kind, name: str) -> float:
    began = time.perf_counter()
    with sides.of(kind).reading("exec", name + kind.pod_suffix, "--", "echo", "x") as process:
        assert process.stdout is not None
        if process.stdout.read(1) != b"x":
            raise RuntimeError(f"kubectl exec of {name} writes nothing")
        took = time.perf_counter() - began
        process.stdout.read()
        process.wait(30)
    return took * 1000


def kubectl_own_ms(sides: Sides, native: str) -> float:
    began = time.perf_counter()
    sides.native.run("get", "--raw", f"/api/v1/namespaces/{sides.native.namespace}/pods/{native}")
    return (time.perf_counter() - began) * 1000


def keys_ms(kubectl: Kubectl, name: str) -> list[float]:
    """Of each key after the first, which waits for the session."""
    screen, inside = pty.openpty()
    command = ["setsid", "--ctty", *kubectl.command("exec", "-it", name, "--", "cat")]
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=subprocess.DEVNULL)
    took = []
    try:
        for _ in range(KEYS + 1):
            began = time.perf_counter()
            os.write(screen, b"k")
            while b"k" not in os.read(screen, 4096):
                pass
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
        os.close(inside)
    return took[1:]


@benchmark(
    Figure(
        "session-first-byte-p50",
        "kubectl exec -> first byte, first session of a pod: median",
        "ms",
        Target("difference", "<=", 100),
    ),
    Figure(
        "session-next-byte-p50",
        "the same, later sessions",
        "ms",
        Target("difference", "<=", 50),
    ),
    Figure("session-first-byte-p50-native", "the same of a native pod", "ms"),
    Figure(
        "slurmjob-first-byte-p50",
        "kubectl exec -> first byte, first session of a SlurmJob: median",
        "ms",
        Target("difference", "<=", 100),
    ),
    Figure(
        "slurmjob-next-byte-p50",
        "the same, later sessions",
        "ms",
        Target("difference", "<=", 50),
    ),
    Figure(
        "session-kubectl-own",
        "kubectl's own part of these times (kubectl get --raw): median",
        "ms",
    ),
    Figure(
        "session-key-p50",
        "kubectl exec -it, key -> echo: median",
        "ms",
        Target("difference", "<=", 10),
    ),
    Figure("session-key-p50-native", "the same of a native pod", "ms"),
    takes_s=300,
    short_s=100,
    rounds=2,
    warm_up=False,
    baseline_name=SRUN,
    within=with_sessions,
)
@contextmanager
def session_latency(sides: Sides) -> Iterator[Trial]:
    def measure() -> dict[str, float]:
        with pods_of(sides, ON_SLURM, FIRST) as names:
            first = [first_byte_ms(sides, ON_SLURM, name) for name in names]
            following = [first_byte_ms(sides, ON_SLURM, names[0]) for _ in range(NEXT)]
            keys = keys_ms(sides.of(ON_SLURM), names[0] + ON_SLURM.pod_suffix)
        with pods_of(sides, SLURM_JOB, FIRST) as names:
            job_first = [first_byte_ms(sides, SLURM_JOB, name) for name in names]
            job_following = [first_byte_ms(sides, SLURM_JOB, names[0]) for _ in range(NEXT)]
        with pods_of(sides, NATIVE, 1) as (native,):
            natives = [first_byte_ms(sides, NATIVE, native) for _ in range(NEXT)]
            native_keys = keys_ms(sides.native, native)
            of_kubectl = [kubectl_own_ms(sides, native) for _ in range(NEXT)]
        return {
            "session-first-byte-p50": median(first),
            "session-next-byte-p50": median(following),
            "session-first-byte-p50-native": median(natives),
            "slurmjob-first-byte-p50": median(job_first),
            "slurmjob-next-byte-p50": median(job_following),
            "session-kubectl-own": median(of_kubectl),
            "session-key-p50": median(keys),
            "session-key-p50-native": median(native_keys),
        }

    def measure_srun() -> dict[str, float]:
        with running_job(sides.bed) as job_id:
            seen = on_login(sides.bed, "srun_session.py", int(job_id), NEXT, KEYS)
        first, key = median(seen["first"]), median(seen["keys"])
        return {
            "session-first-byte-p50": first,
            "session-next-byte-p50": first,
            "slurmjob-first-byte-p50": first,
            "slurmjob-next-byte-p50": first,
            "session-key-p50": key,
        }

    yield Trial(measure, measure_srun, notes={"first_sessions": FIRST, "next": NEXT, "keys": KEYS})


def out_mb_s(sides: Sides, kind: Kind, name: str) -> float:
    """What `kubectl cp` from the job is: bytes of a command, through kubectl's stdout."""
    script = f"head -c {MEGABYTES * MIB} /dev/zero"
    began = time.perf_counter()
    with sides.of(kind).reading("exec", name, "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        size = 0
        while data := process.stdout.read(1 << 20):
            size += len(data)
    if size != MEGABYTES * MIB:
        raise RuntimeError(f"{size} bytes came of {MEGABYTES} MiB")
    return size / 1e6 / (time.perf_counter() - began)


def in_mb_s(sides: Sides, kind: Kind, name: str) -> float:
    command = sides.of(kind).command("exec", "-i", name, "--", "sh", "-c", "cat >/dev/null")
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with suppress(BrokenPipeError):  # kubectl has ended: it says why
            for _ in range(MEGABYTES):
                process.stdin.write(bytes(MIB))
            process.stdin.close()
        words = process.stderr.read().decode()
        if process.wait(300):
            raise RuntimeError(f"kubectl exec -i failed: {words}")
    return MEGABYTES * MIB / 1e6 / (time.perf_counter() - began)


@benchmark(
    Figure("session-out", f"kubectl exec that writes {MEGABYTES} MiB", "MB/s", Target("ratio", ">=", 0.8)),
    Figure("session-in", f"kubectl exec -i that reads {MEGABYTES} MiB", "MB/s", Target("ratio", ">=", 0.8)),
    Figure("session-out-native", "the same of a native pod, without Slurm", "MB/s"),
    Figure("session-in-native", "the same of a native pod, without Slurm", "MB/s"),
    takes_s=150,
    rounds=3,
    warm_up=False,
    baseline_name="srun -u alone",
    within=with_sessions,
)
@contextmanager
def session_throughput(sides: Sides) -> Iterator[Trial]:
    with pods_of(sides, ON_SLURM, 1) as (ours,), pods_of(sides, NATIVE, 1) as (native,):

        def both_ways(kind: Kind, name: str) -> dict[str, float]:
            return {"session-out": out_mb_s(sides, kind, name), "session-in": in_mb_s(sides, kind, name)}

        yield Trial(
            lambda: {**both_ways(ON_SLURM, ours), **of_natives(both_ways(NATIVE, native))},
            lambda: srun_mb_s(sides.bed),
        )


def srun_mb_s(bed: Bed) -> dict[str, float]:
    """The same bytes through a step's input and output alone."""
    zeros = f"head -c {MEGABYTES * MIB} /dev/zero"
    with running_job(bed) as job_id:
        step = f"srun -Q -u -n1 --overlap --jobid={job_id}"
        return {
            "session-out": on_login_mb_s(bed, f"{step} {zeros} >/dev/null"),
            "session-in": on_login_mb_s(bed, f"{zeros} | {step} sh -c 'cat >/dev/null'"),
        }


def on_login_mb_s(bed: Bed, script: str) -> float:
    began = time.perf_counter()
    bed.host("login").run("sh", "-ec", script, user=USER, timeout=300)
    return MEGABYTES * MIB / 1e6 / (time.perf_counter() - began)


@contextmanager
def running_job(bed: Bed) -> Iterator[str]:
    """A job of the user with nothing of ours, whose batch step has begun."""
    login = bed.host("login")
    options = ("--parsable", "--output=/dev/null", f"--wrap={LASTS}")
    job_id = login.run("sbatch", *options, user=USER).stdout.strip()
    try:
        while "R" not in login.run("squeue", "-h", "-o", "%t", f"--jobs={job_id}").stdout:
            time.sleep(0.5)
        time.sleep(1)
        yield job_id
    finally:
        login.run("scancel", job_id)


# ---------------------------------------------------------------------------------------------- Services
PORT = 18888
SERVES = f"cd $(mktemp -d); echo served > index.html; exec python3 -m http.server {PORT}"
JOB = "bench-served"


@contextmanager
def served(sides: Sides) -> Iterator[tuple[str, str]]:
    """A job that serves, behind a Service: the Service's address, and the Slurm node's."""
    ports = [{"name": "http", "port": 8080, "targetPort": PORT}]
    spec = {"cluster": "hpc1", "batch": f"#!/bin/sh\n{SERVES}\n", "ports": ports}
    selected = {"selector": {"redbox.dev/slurmjob": JOB}, "ports": [{"port": 80, "targetPort": "http"}]}
    alice = sides.alice
    alice.apply({"apiVersion": API, "kind": "SlurmJob", "metadata": {"name": JOB}, "spec": spec})
    alice.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": JOB}, "spec": selected})
    try:
        alice.run("wait", f"slurmjob/{JOB}", "--for=jsonpath={.status.phase}=Running", "--timeout=50s")
        alice.run("wait", "pod", f"--selector=redbox.dev/slurmjob={JOB}", "--for=condition=Ready")
        address = alice.run("get", "service", JOB, "--output=jsonpath={.spec.clusterIP}")
        node = alice.run("get", "slurmjob", JOB, "--output=jsonpath={.status.nodes[0]}")
        yield address, sides.bed.plan.host(node).address
    finally:
        alice.run("delete", "service", JOB)
        alice.run("delete", "slurmjob", JOB)


def requests_ms(bed: Bed, address: str, port: int) -> float:
    """Of a Kubernetes node's curl: the server closes each connection."""
    asked = [word for _ in range(REQUESTS + 1) for word in (f"http://{address}:{port}/", "-o", "/dev/null")]
    shown = bed.host("k1").run("curl", "-sf", "-w", "%{time_total}\\n", *asked, timeout=300).stdout
    return 1000 * median(map(float, shown.split()[1:]))


@benchmark(
    Figure(
        "service-request-p50",
        "HTTP request through a Service to a job: median",
        "ms",
        Target("difference", "<=", 5),
    ),
    takes_s=100,
    short_s=40,
    rounds=3,
    warm_up=False,
    baseline_name="directly to the Slurm node",
    within=with_sessions,
)
@contextmanager
def service_requests(sides: Sides) -> Iterator[Trial]:
    with served(sides) as (service, node):
        yield Trial(
            lambda: {"service-request-p50": requests_ms(sides.bed, service, 80)},
            lambda: {"service-request-p50": requests_ms(sides.bed, node, PORT)},
            notes={"requests": REQUESTS},
        )
