"""A case counts only if its pods ran on a virtual node, as it was written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import Case, CaseList, Rule
from tests.conformance.pods_watch import PodsOfNamespace
from tests.conformance.report import headline, summary
from tests.conformance.results import Result, Results, Verdict, judge, namespaces_of

CASE = Case("[sig-node] Pods should run [Conformance]", "[sig-node] Pods")
NOTHING = CaseList((), {}, ())
ON_SLURM = PodsOfNamespace({"hpc1.long"})


def spec(state: str = "passed", message: str = "") -> Mapping[str, Any]:
    return {
        "ContainerHierarchyTexts": [CASE.area],
        "LeafNodeText": "should run [Conformance]",
        "State": state,
        "RunTime": 2_000_000_000,
        "Failure": {"Message": message},
        "CapturedGinkgoWriterOutput": 'STEP: Destroying namespace "pods-7" for this suite.',
    }


def judged(pods: PodsOfNamespace, ended: Mapping[str, Any], chosen: CaseList = NOTHING) -> Result:
    (result,) = judge([CASE], chosen, [ended], lambda _: pods)
    return result


def test_a_case_that_passes_on_a_virtual_node_counts() -> None:
    result = judged(ON_SLURM, spec())
    assert (result.verdict, result.seconds, result.is_unexpected) == (Verdict.PASSED, 2, False)


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        (PodsOfNamespace(), "without a pod on a virtual node"),
        (PodsOfNamespace({"hpc1.long", "k1"}), "with pods on k1"),
        (PodsOfNamespace({"hpc1.long"}, {"spec.hostPID: leave it out"}), "refused: spec.hostPID"),
    ],
)
def test_a_case_that_passes_without_showing_anything_does_not(pods: PodsOfNamespace, message: str) -> None:
    result = judged(pods, spec())
    assert (result.verdict, result.is_unexpected) == (Verdict.FAILED, True)
    assert message in result.message


def test_a_failure_says_which_field_was_refused_and_what_the_suite_says() -> None:
    refused = PodsOfNamespace({"hpc1.long"}, {"spec.hostPID: leave it out"})
    result = judged(refused, spec("failed", "pod failed\n  permanently"))
    assert result.message == "refused: spec.hostPID: leave it out. failed: pod failed permanently"


def test_a_case_without_a_report_has_failed() -> None:
    (result,) = judge([CASE], NOTHING, [], lambda _: ON_SLURM)
    assert (result.verdict, result.message) == (Verdict.FAILED, "was not run to its end")


@pytest.mark.parametrize(
    ("section", "verdict"),
    [("outside", Verdict.OUTSIDE), ("refused", Verdict.REFUSED), ("open", Verdict.FAILED)],
)
def test_the_list_gives_the_reason(section: str, verdict: Verdict) -> None:
    chosen = CaseList((Rule(section, "Pods", "a reason"),), {}, ())
    result = judged(ON_SLURM, spec("failed"), chosen)
    assert (result.verdict, result.why, result.is_unexpected) == (verdict, "a reason", False)


def test_an_open_case_that_passes_has_to_leave_the_list() -> None:
    result = judged(ON_SLURM, spec(), CaseList((Rule("open", "Pods", "a reason"),), {}, ()))
    assert result.is_unexpected
    lines = list(summary(Results((result,), 60, {})))
    assert f"passes, and has to leave the list of open cases: {CASE.name}" in lines


def test_the_namespaces_of_a_case_are_in_what_it_wrote() -> None:
    event = {"Message": 'Destroying namespace "pods-8" for this suite.'}
    assert namespaces_of({**spec(), "SpecEvents": [event]}) == {"pods-7", "pods-8"}


def test_results_are_read_as_they_were_stored(tmp_path: Path) -> None:
    results = Results((judged(ON_SLURM, spec()),), 754, {"date": "2026-11-29"})
    results.store(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results
    assert headline(results).startswith("1 of 1 cases pass as Kubernetes wrote them, in 12 min 34 s")
