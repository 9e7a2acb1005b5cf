"""Runs Kubernetes' conformance cases on virtual nodes: `python -m tests.conformance` (make conformance).

The bed is a separate one, since its API server needs a beta of Kubernetes. It is taken down in the end,
unless it was up before. The results are in build/conformance.json.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT, Places
from redbox_bed.core.progress import Progress
from redbox_bed.programs.kube_e2e import ensure_kube_e2e
from tests.bench.conditions import bed_versions, machine_conditions
from tests.conformance import cluster, stand_ins
from tests.conformance.cases import Case, CaseList, conformance_cases
from tests.conformance.pods_watch import PodsWatch
from tests.conformance.report import summary, table
from tests.conformance.results import Result, Results, judge
from tests.conformance.suite import Lane, Suite, lanes_of, stop_all

BED = CHECKOUT / "deploy/local/bed"
FOLDER = CHECKOUT / "build/conformance"
RESULTS = CHECKOUT / "build/conformance.json"
PART = CHECKOUT / "build/conformance-part.json"
"""Of the short form, or of chosen cases: never published."""
OWN_BED = {"BED_DIR": str(CHECKOUT / ".bed-conformance"), "BED_PORT_OFFSET": "49"}
BED_STARTS_WITHIN_S = 45 * 60
RUNS_WITHIN_S = 30 * 60
PROCESSES = 8
LOOK_S = 1
SAY_S = 30


@dataclass(frozen=True)
class Choice:
    """The list, all cases, and those of them that this run is about."""

    listed: CaseList
    cases: Sequence[Case]
    about: Sequence[Case]

    @property
    def to_run(self) -> list[Case]:
        return [case for case in self.about if self.listed.is_run(case.name)]

    def lanes(self, nodes: Sequence[str]) -> list[Lane]:
        return lanes_of(self.to_run, self.listed, nodes, PROCESSES)


@contextmanager
def bed_in_use(console: Console) -> Iterator[Bed]:
    """Bring the bed up if it is not, and then take it down afterwards."""
    was_up = subprocess.run([BED, "status"], check=False, capture_output=True, timeout=120).returncode == 0
    try:
        _bed("up", "--fast", "--mutating-policies")
        _bed("redbox", "--unless-current")
        yield Bed.open()
    finally:
        if not was_up:
            console.print("taking the bed down")
            subprocess.run([BED, "down"], check=True, timeout=300)


def _bed(*arguments: str) -> None:
    command = [str(BED), *arguments]
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL, timeout=BED_STARTS_WITHIN_S).returncode:
        raise SystemExit(1)  # the bed has printed why


def choose(suite: Suite, only: str, *, short: bool) -> Choice:
    listed, cases = CaseList.read(), conformance_cases(suite.reports())
    listed.check(cases)
    about = listed.short_form(cases) if short else [case for case in cases if re.search(only, case.name)]
    return Choice(listed, cases, about)


def run(suite: Suite, choice: Choice, console: Console) -> list[Result]:
    """All lanes side by side, until the last one has ended."""
    lanes = choice.lanes(cluster.slurm_nodes(suite.bed))
    watch = PodsWatch(suite.bed.places.kubeconfig, suite.folder / "pods.jsonl")
    began = shown = time.monotonic()
    started: dict[str, subprocess.Popen[bytes]] = {}
    with watch.running(), ExitStack() as running:
        while len(started) < len(lanes) or any(process.poll() is None for process in started.values()):
            for lane in lanes:
                if lane.name not in started and _may_start(lane, lanes, started):
                    started[lane.name] = suite.start(lane, RUNS_WITHIN_S - int(time.monotonic() - began))
                    stop_all(running, started[lane.name])
            time.sleep(LOOK_S)
            if time.monotonic() - shown > SAY_S:
                shown = time.monotonic()
                ended = suite.ended(lane for lane in lanes if lane.name in started)
                console.print(f"{ended} of {len(choice.to_run)} cases, {shown - began:.0f} s")
    ended_specs = [spec for lane in lanes for spec in suite.results(lane)]
    return judge(choice.about, choice.listed, ended_specs, watch.of)


def _may_start(lane: Lane, lanes: Sequence[Lane], started: Mapping[str, subprocess.Popen[bytes]]) -> bool:
    """Whether the lane that it follows has ended, if that one is run at all."""
    if lane.after not in {other.name for other in lanes}:
        return True
    return lane.after in started and started[lane.after].poll() is not None


def main(
    only: Annotated[str, typer.Option(help="Only cases whose names this expression matches.")] = "",
    *,
    short: Annotated[bool, typer.Option("--short", help="20 cases.")] = False,
) -> None:
    """Run the cases, show the table and keep it; exits with 1 if a case ended as the list does not expect."""
    for name, value in OWN_BED.items():
        os.environ.setdefault(name, value)
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    FOLDER.mkdir(parents=True, exist_ok=True)
    repositories = FOLDER / "repositories.yaml"
    repositories.write_text(stand_ins.REGISTRIES)
    progress = Progress()
    programs = ensure_kube_e2e(Places.of(), progress)
    with bed_in_use(console) as bed:
        suite = Suite(programs, bed, FOLDER, repositories)
        choice = choose(suite, only, short=short)
        stand_ins.push(bed, progress, programs, repositories)
        cluster.prepare(bed)
        conditions = {**machine_conditions(datetime.now(UTC)), **bed_versions(bed)}
        began = time.monotonic()
        cases = run(suite, choice, console)
        results = Results(tuple(cases), round(time.monotonic() - began, 1), conditions)
    path = PART if only or short else RESULTS
    results.store(path)
    _show(console, results, path)
    sys.exit(any(case.is_unexpected for case in results.cases))


def _show(console: Console, results: Results, path: Path) -> None:
    console.print(table(results))
    for line in summary(results):
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"written to {path}")


if __name__ == "__main__":
    typer.run(main)
