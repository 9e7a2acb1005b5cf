"""Where our programs spend their time under a load, as text: `python -m tests.bench.profiles LOAD`.

py-spy takes the samples, of the threads that hold the interpreter's lock: what waits, for a disk or another
process, costs no CPU. The bed is up, for `virtual` with Red Box on it; the text is in build/profiles, beside
the samples of each process, from which flamegraph.pl or speedscope draw their pictures.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from tests.bench.bench_account import FINAL, MANY, create, delete_all, watching
from tests.bench.bench_pods import Sides
from tests.bench.bench_redbox import redbox
from tests.bench.bench_redbox_scale import CROWDED, KEPT, OFTEN, wait_for_looks
from tests.bench.bench_sessions import first_byte_ms, in_mb_s, out_mb_s, pods_of, with_sessions
from tests.bench.bench_sessions_account import relays
from tests.bench.kubectl import Kubectl
from tests.bench.large_queue import LargeQueue, filled_redbox
from tests.bench.pod_lives import ON_SLURM, Kind
from tests.bench.processor_time import named_processes

FOLDER = CHECKOUT / "build/profiles"
SAMPLES_PER_S = 200
SHOWN = 30
SUBMITS = 1000
LOOKS = 10
ENDS_WITHIN_S = 60

Load = Literal["submit", "submit-32", "look", "look-foreign", "virtual", "session-in", "session-out"]
Named = tuple[str, int]
"""A process as the account calls it, and its pid."""


def summary(samples: str) -> str:
    """Of py-spy's raw format, a stack and its count a line: each function's own share, and the whole one."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [frame.rpartition(":")[0] or frame for frame in stack.split(";")]
        own[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    total = own.total()
    parts = [f"{total} samples"]
    for title, counts in (("own", own), ("with what they call", whole)):
        lines = (f"{count / total:7.1%}  {frame}" for frame, count in counts.most_common(SHOWN))
        parts += ["", title, *lines]
    return "\n".join(parts) + "\n"


@contextmanager
def profiling(name: str, processes: Iterable[Named]) -> Iterator[None]:
    """Sample these processes, and write what was seen at the end."""
    program = shutil.which("py-spy") or f"{CHECKOUT}/.venv/bin/py-spy"
    FOLDER.mkdir(parents=True, exist_ok=True)
    started: dict[Path, subprocess.Popen[bytes]] = {}
    for process, pid in processes:
        raw = FOLDER / f"{name}-{process}-{pid}.samples"
        argv = [program, "record", "--gil", "--pid", str(pid), "--rate", str(SAMPLES_PER_S)]
        argv += ["--duration", "3600", "--format", "raw", "--output", str(raw)]
        started[raw] = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        for raw, sampler in started.items():
            sampler.send_signal(signal.SIGINT)
            sampler.wait(ENDS_WITHIN_S)
            text = raw.read_text() if raw.exists() else ""
            if text:
                raw.with_suffix(".txt").write_text(summary(text))


def named(bed: Bed, names: Collection[str]) -> list[Named]:
    return [(name, pid) for _, name, pid in named_processes(bed) if name in names]


def profile_submits(bed: Bed, name: str, parallel: int) -> None:
    with redbox(bed) as callers:
        callers.run("submit", count=parallel, parallel=parallel)  # the agents run
        with profiling(name, named(bed, {"redbox", "agent"})):
            callers.run("submit", count=SUBMITS, parallel=parallel)


def profile_looks(bed: Bed, name: str, queue: LargeQueue) -> None:
    with filled_redbox(bed, queue, dict(OFTEN)) as server:
        server.start()
        wait_for_looks(server, 3)
        with profiling(name, named(bed, {"redbox"})):
            wait_for_looks(server, LOOKS)


def profile_virtual(bed: Bed, name: str) -> None:
    """The whole lives of some SlurmJobs on virtual nodes."""
    jobs = Kubectl(bed.places, "alice")
    with profiling(name, named(bed, {"operator", "resourced"})), watching(jobs) as wait:
        wait(set(create(jobs, MANY, "true")), FINAL)
    delete_all(jobs)


def profile_session(bed: Bed, name: str, transfer: Callable[[Sides, Kind, str], object]) -> None:
    """Bytes of one command, all one way."""
    with with_sessions(bed) as sides, pods_of(sides, ON_SLURM, 1) as (pod,):
        first_byte_ms(sides, ON_SLURM, pod)
        processes = named(bed, {"redbox", "agent", "resourced"}) + [("relay", pid) for pid in relays(bed)]
        with profiling(name, processes):
            transfer(sides, ON_SLURM, pod)


LOADS: dict[str, Callable[[Bed, str], None]] = {
    "submit": lambda bed, name: profile_submits(bed, name, 1),
    "submit-32": lambda bed, name: profile_submits(bed, name, 32),
    "look": lambda bed, name: profile_looks(bed, name, KEPT),
    "look-foreign": lambda bed, name: profile_looks(bed, name, CROWDED),
    "virtual": profile_virtual,
    "session-in": lambda bed, name: profile_session(bed, name, in_mb_s),
    "session-out": lambda bed, name: profile_session(bed, name, out_mb_s),
}


def main(load: Annotated[Load, typer.Argument(help="what is going on meanwhile")]) -> None:
    """Profile our programs under a load."""
    LOADS[load](Bed.open(), load)
    for text in sorted(FOLDER.glob(f"{load}-*.txt")):
        typer.echo(f"{text}\n{text.read_text()}")


if __name__ == "__main__":
    typer.run(main)
