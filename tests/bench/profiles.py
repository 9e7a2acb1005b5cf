"""Where operator and resourced spend their time under a load, as text: `python -m tests.bench.profiles NAME`.

py-spy samples both while fifty SlurmJobs live, on a bed to which both sides are delivered. The text has, for
each function, the share of the samples in which it is on the stack, without those in which the process waits.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from tests.bench.bench_account import FINAL, MANY, create, delete_all, watching
from tests.bench.kubectl import Kubectl
from tests.bench.processor_time import named_processes

FOLDER = CHECKOUT / "docs/profiles"
PROGRAMS = ("operator", "resourced")
RATE, SECONDS = 200, 20
WAITS = ("EpollSelector.select", "_worker (concurrent/futures")
SHOWN_FROM = 1.0
"""Percent."""


def shares(folded: Iterable[str]) -> Iterator[tuple[float, str]]:
    """Percent of the samples, and a function: of stacks as py-spy folds them, `a;b;c 7`."""
    total, inclusive = 0, Counter[str]()
    for line in folded:
        stack, _, samples = line.rstrip().rpartition(" ")
        if any(wait in stack for wait in WAITS):
            continue
        total += int(samples)
        for function in set(stack.split(";")):
            inclusive[function] += int(samples)
    return ((count * 100 / total, function) for function, count in inclusive.most_common())


def text_of(folded: Iterable[str]) -> str:
    return "".join(
        f"{share:5.1f}%  {function}\n" for share, function in shares(folded) if share >= SHOWN_FROM
    )


@contextmanager
def sampled(bed: Bed, folder: Path) -> Iterator[None]:
    """Both programs, for as long as they are sampled at the least."""
    command = ("py-spy", "record", "--format=raw", f"--rate={RATE}", f"--duration={SECONDS}")
    samplers = [
        subprocess.Popen([*command, f"--output={folder / name}", f"--pid={pid}"], stdout=subprocess.DEVNULL)
        for _, name, pid in named_processes(bed)
        if name in PROGRAMS
    ]
    try:
        yield
    finally:
        for sampler in samplers:
            sampler.wait(SECONDS + 60)


def main(load: Annotated[str, typer.Argument(help="What the files are called after, as `virtual`.")]) -> None:
    bed = Bed.open()
    jobs = Kubectl(bed.places, "alice")
    with tempfile.TemporaryDirectory() as folder:
        with sampled(bed, Path(folder)), watching(jobs) as wait:
            wait(set(create(jobs, MANY, "true")), FINAL)
        delete_all(jobs)
        FOLDER.mkdir(exist_ok=True)
        for file in Path(folder).iterdir():
            with file.open() as folded:
                (FOLDER / f"{load}-{file.name}.txt").write_text(text_of(folded))


if __name__ == "__main__":
    typer.run(main)
