"""Cases with fixed ports are spread over the Slurm nodes, one at a time on each."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.cases import Case, CaseList
from tests.conformance.cluster import ADMISSION, PARTITION
from tests.conformance.suite import USER_OF_NODE, lanes_of, specs

NAMES = ("pods", "hooks 1", "hooks 2", "hooks 3", "servers", "replicas")
PODS, *HOOKS, SERVERS, REPLICAS = CASES = [Case(name, "area") for name in NAMES]
LISTED = CaseList((), {"on-a-node": ["hooks"], "web": ["servers"], "after-web": ["replicas"]}, ())


def test_each_slurm_node_has_a_lane_of_its_own() -> None:
    lanes = {lane.name: lane for lane in lanes_of(CASES, LISTED, ["n1", "n2"], 3)}
    assert {name: lane.cases for name, lane in lanes.items()} == {
        "together": (PODS,),
        "web": (SERVERS,),
        "after-web": (REPLICAS,),
        "on-n1": (HOOKS[0], HOOKS[2]),
        "on-n2": (HOOKS[1],),
    }
    assert {lane.node for lane in lanes.values()} == {"", "n1", "n2"}
    assert [lane.processes for lane in lanes.values()] == [3, 1, 3, 1, 1]


def test_a_lane_without_cases_is_not_run() -> None:
    assert [lane.node for lane in lanes_of(HOOKS[:1], LISTED, ["n1", "n2"], 3)] == ["n1"]


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
