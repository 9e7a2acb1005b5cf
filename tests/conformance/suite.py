"""Kubernetes' e2e.test at work: which cases there are, and how those that ginkgo ran have ended.

Most cases run in several processes of one ginkgo. Some of those with fixed ports run in one process for each
Slurm node: its user is called after the node, by which the admission policy knows where the pods go.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from redbox_bed.bed import Bed
from tests.conformance.cases import Case, CaseList, focus

LISTED_WITHIN_S = 120
STARTS = "• "
"""Of ginkgo's line that says how a case ended."""
USER_OF_NODE = "conformance-"
ON_A_NODE = "on-a-node"
FLAGS = (
    "--provider=local",
    # The virtual nodes' taint: the framework waits for nodes without one before it starts.
    "--non-blocking-taints=node-role.kubernetes.io/control-plane,redbox.dev/slurm",
    "--allowed-not-ready-nodes=0",
    "--disable-log-dump",
    "--dump-logs-on-failure=false",
)


@dataclass(frozen=True)
class Lane:
    """Cases that one ginkgo runs, and in how many processes; on a Slurm node alone, or after another lane."""

    name: str
    cases: tuple[Case, ...]
    processes: int
    node: str = ""
    after: str = ""


@dataclass(frozen=True)
class Suite:
    """The programs, the bed that they test, and the folder for what they write."""

    programs: Path
    bed: Bed
    folder: Path
    repositories: Path

    def reports(self) -> list[Mapping[str, Any]]:
        """Every case of the suite, none of them run."""
        report = self.folder / "all.json"
        dry = ("--ginkgo.dry-run", "--ginkgo.silence-skips", f"--ginkgo.json-report={report}")
        command = [str(self.programs / "e2e.test"), *dry, "--provider=local", "--ginkgo.no-color"]
        with (self.folder / "all.log").open("wb") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, timeout=LISTED_WITHIN_S)
        return specs(report)

    def start(self, lane: Lane, within_s: int) -> subprocess.Popen[bytes]:
        """Run its cases; the report is written when they have ended or the time is over."""
        self._report(lane).unlink(missing_ok=True)
        runner = (
            *("nice", "-n", "5", str(self.programs / "ginkgo"), "run", "--no-color", "-v"),
            *(f"--procs={lane.processes}", f"--timeout={within_s}s", f"--focus={focus(lane.cases)}"),
            *(f"--output-dir={self.folder}", f"--json-report={self._report(lane).name}"),
        )
        flags = (
            *(
                f"--kubeconfig={self._kubeconfig(lane)}",
                f"--kubectl-path={self.bed.places.state}/bin/kubectl",
            ),
            *FLAGS,
        )
        command = [*runner, str(self.programs / "e2e.test"), "--", *flags]
        # Some names of images are made before flags are read.
        environment = {**os.environ, "KUBE_TEST_REPO_LIST": str(self.repositories)}
        with self._log(lane).open("wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=environment
            )

    def ended(self, lanes: Iterable[Lane]) -> int:
        """How many cases of lanes that were started have ended so far."""
        logs = (self._log(lane).read_text(errors="replace") for lane in lanes)
        return sum(line.startswith(STARTS) for log in logs for line in log.splitlines())

    def results(self, lane: Lane) -> list[Mapping[str, Any]]:
        """The cases that were started; nothing where ginkgo did not come to its report."""
        report = self._report(lane)
        started = specs(report) if report.exists() else []
        return [
            spec for spec in started if spec["State"] not in {"skipped", "pending"} or spec.get("Failure")
        ]

    def _report(self, lane: Lane) -> Path:
        return self.folder / f"{lane.name}.json"

    def _log(self, lane: Lane) -> Path:
        return self.folder / f"{lane.name}.log"

    def _kubeconfig(self, lane: Lane) -> Path:
        """The administrator's; of a lane with a node as a user that is called after it."""
        if not lane.node:
            return self.bed.places.kubeconfig
        content = yaml.safe_load(self.bed.places.kubeconfig.read_text())
        for each in content["users"]:
            each["user"] |= {"as": f"{USER_OF_NODE}{lane.node}", "as-groups": ["system:masters"]}
        path = self.folder / f"{lane.name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content))
        return path


def lanes_of(cases: Sequence[Case], listed: CaseList, nodes: Sequence[str], processes: int) -> list[Lane]:
    """As the list has them; cases of the lane `on-a-node` are dealt out to the nodes."""
    by_lane: dict[str, list[Case]] = {}
    for case in cases:
        by_lane.setdefault(listed.lane_of(case.name), []).append(case)
    on_a_node = by_lane.get(ON_A_NODE, [])
    lanes = [
        Lane("together", tuple(by_lane.get("", ())), processes),
        Lane("web", tuple(by_lane.get("web", ())), 1),
        Lane("after-web", tuple(by_lane.get("after-web", ())), processes, after="web"),
        *(Lane(f"on-{node}", tuple(on_a_node[at :: len(nodes)]), 1, node) for at, node in enumerate(nodes)),
    ]
    return [lane for lane in lanes if lane.cases]


def specs(report: Path) -> list[Mapping[str, Any]]:
    """The cases of a report of ginkgo, without what runs before and after all."""
    suites = json.loads(report.read_text())
    return [spec for suite in suites for spec in suite["SpecReports"] or [] if spec["LeafNodeType"] == "It"]


def stop_all(running: ExitStack, started: subprocess.Popen[bytes]) -> None:
    """Have it ended, by its id, however the caller ends."""
    running.callback(_stop, started)


def _stop(started: subprocess.Popen[bytes]) -> None:
    if started.poll() is None:
        started.terminate()
        started.wait(timeout=60)


def messages(spec: Mapping[str, Any]) -> Iterator[str]:
    """What a case wrote: its steps and its log."""
    yield str(spec.get("CapturedGinkgoWriterOutput", ""))
    yield from (str(event.get("Message", "")) for event in spec.get("SpecEvents") or [])
