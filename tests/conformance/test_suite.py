"""Cases with fixed ports are spread over the Slurm nodes, one at a time on each."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.cases import Case
from tests.conformance.cluster import ADMISSION, PARTITION
from tests.conformance.suite import USER_OF_NODE, lanes_of, specs

CASES = [Case(f"case {number}", "area") for number in range(5)]


def test_each_slurm_node_has_a_lane_of_its_own() -> None:
    together, first, second = lanes_of(CASES[:2], CASES[2:], ["n1", "n2"], 3)
    assert (together.cases, together.processes, together.node) == (tuple(CASES[:2]), 3, "")
    assert (first.cases, first.processes, first.node) == ((CASES[2], CASES[4]), 1, "n1")
    assert (second.cases, second.processes, second.node) == ((CASES[3],), 1, "n2")


def test_a_lane_without_cases_is_not_run() -> None:
    assert [lane.node for lane in lanes_of([], CASES[:1], ["n1", "n2"], 3)] == ["n1"]


def test_the_admission_policy_reads_the_node_from_the_name_of_the_user() -> None:
    policy = ADMISSION.read_text()
    assert f'startsWith("{USER_OF_NODE}")' in policy
    assert f"username.substring({len(USER_OF_NODE)})" in policy
    assert f'value: "hpc1.{PARTITION}"' in policy


def test_what_runs_before_and_after_all_cases_is_no_case(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    kinds = [{"LeafNodeType": kind} for kind in ("SynchronizedBeforeSuite", "It", "ReportAfterSuite")]
    report.write_text(json.dumps([{"SpecReports": kinds}, {"SpecReports": None}]))
    assert specs(report) == [{"LeafNodeType": "It"}]
