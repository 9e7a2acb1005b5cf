"""Keys and log lines of one tenant through resourced while another floods it with SPDY streams."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice

from redbox_bed.bed import Bed
from tests.bench.bench_sessions import keys_ms, with_sessions
from tests.bench.bench_slurmjobs import RUNNING, slurm_job
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.kubectl import Kubectl
from tests.bench.rows import Figure, Target, percentile

CONNECTIONS = 32
SETTLES_S = 1.5
LINES = sized(60, 30)
JOB, POD = "bench-spdy", "bench-spdy-job"
SCRIPTS = {"alice": "sleep 1200", "bob": "while :; do date +%s.%N; sleep 0.137; done"}


@dataclass(frozen=True)
class Tenants:
    """Each has a running job."""

    alice: Kubectl
    bob: Kubectl

    @contextmanager
    def flooded(self) -> Iterator[None]:
        asked = {
            "kubeconfig": str(self.alice.places.kubeconfig),
            "namespace": self.alice.namespace,
            "pod": POD,
            "connections": CONNECTIONS,
        }
        command = [sys.executable, "-m", "tests.bench.loads.spdy_streams"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as flooding:
            try:
                assert flooding.stdin is not None
                flooding.stdin.write(json.dumps(asked))
                flooding.stdin.close()
                time.sleep(SETTLES_S)
                yield
                if flooding.poll() is not None:
                    raise RuntimeError("the flood has ended")
            finally:
                flooding.kill()

    def seen_by_bob(self, *, flooded: bool) -> dict[str, float]:
        with self.flooded() if flooded else nullcontext():
            seen = {"key": keys_ms(self.bob, POD), "line": self.lines_ms()}
        return {
            f"tenants-spdy-{name}-p{percent}": percentile(taken, percent)
            for name, taken in seen.items()
            for percent in (50, 99)
        }

    def lines_ms(self) -> list[float]:
        """How late each is."""
        with self.bob.reading("logs", "--follow", "--tail=0", POD) as logs:
            assert logs.stdout is not None
            return [(time.time() - float(line)) * 1000 for line in islice(logs.stdout, LINES)]


@contextmanager
def two_tenants(bed: Bed) -> Iterator[Tenants]:
    with with_sessions(bed) as sides:
        both = Tenants(sides.alice, replace(sides.alice, namespace="bob"))
        try:
            for kubectl in (both.alice, both.bob):
                kubectl.apply(slurm_job(JOB, SCRIPTS[kubectl.namespace]))
            for kubectl in (both.alice, both.bob):
                kubectl.run("wait", f"slurmjob/{JOB}", f"--for={RUNNING}", "--timeout=50s")
            yield both
        finally:
            for kubectl in (both.alice, both.bob):
                kubectl.run("delete", "slurmjob", JOB, "--ignore-not-found", "--timeout=170s", timeout=180)


@benchmark(
    *(
        Figure(f"tenants-spdy-{name}-p{percent}", f"{seen} beside SPDY streams: {which}", "ms", target)
        for name, seen in (("key", "kubectl exec -it, key -> echo"), ("line", "kubectl logs, line"))
        for percent, which, target in (
            (50, "median", Target("ratio", "<=", 2)),
            (99, "99th percentile", Target("value", "<=", 250)),
        )
    ),
    takes_s=150,
    rounds=3,
    warm_up=False,
    baseline_name="no flood",
    within=two_tenants,
)
@contextmanager
def tenants_spdy(tenants: Tenants) -> Iterator[Trial]:
    yield Trial(
        measure=lambda: tenants.seen_by_bob(flooded=True),
        baseline=lambda: tenants.seen_by_bob(flooded=False),
        notes={"connections": CONNECTIONS},
    )
