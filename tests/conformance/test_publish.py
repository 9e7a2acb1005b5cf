"""The page of conformance is made of the published results, and hides nothing."""

from __future__ import annotations

from tests.conformance.cases import CaseList, Rule
from tests.conformance.publish import PAGE, STORED, explained, merged, page
from tests.conformance.results import Result, Results, Verdict

MACHINE = {"cores": 2, "cpu": "a CPU", "memory_gib": 4, "kernel": "6", "python": "3.13"}
CONDITIONS = {
    **MACHINE,
    "date": "2026-11-29T19:00:00+00:00",
    "commit": "abc",
    "slurm_hpc1": "slurm 24.11",
    "kubernetes": "v1.34",
}


def case(area: str, name: str, verdict: Verdict, why: str = "") -> Result:
    return Result(f"{area} {name} [Conformance]", area, verdict, why)


def test_each_area_has_its_counts_and_each_failure_its_reason() -> None:
    text = page(
        Results(
            (
                case("[sig-node] Pods", "should run", Verdict.PASSED),
                case("[sig-node] Pods", "should be resized", Verdict.FAILED, "Slurm has no such thing"),
                case("[sig-node] Pods", "should fly", Verdict.FAILED),
                case("[sig-apps] Daemon set", "should run", Verdict.REFUSED, "a partition is no machine"),
                case("[sig-node] Lease", "should be there", Verdict.OUTSIDE, "objects alone"),
            ),
            61,
            CONDITIONS,
        )
    )
    assert "| [sig-node] Pods | 1 | 0 | 2 |\n" in text
    assert "| **all** | **1** | **1** | **2** |" in text
    assert "- Slurm has no such thing: Pods *should be resized*." in text
    assert "- Not explained yet: Pods *should fly*." in text
    assert "- a partition is no machine: 1 of Daemon set." in text
    assert "- objects alone: 1 of Lease." in text
    assert (
        "**1 of 3 cases pass as Kubernetes wrote them, in 1 min 1 s; 1 more are refused by design.**" in text
    )


def test_cases_that_were_run_again_replace_those_before() -> None:
    failed = case("[sig-node] Pods", "should run", Verdict.FAILED)
    other = case("[sig-node] Lease", "should be there", Verdict.OUTSIDE, "objects alone")
    passed = case("[sig-node] Pods", "should run", Verdict.PASSED)
    results = merged(Results((failed, other), 61, CONDITIONS), Results((passed,), 5, CONDITIONS))
    assert (results.cases, results.seconds) == ((passed, other), 61)
    assert "1 cases that the bed or a repair had changed were run again" in page(results)


def test_reasons_are_those_of_the_list_as_it_is_now() -> None:
    listed = CaseList((Rule("refused", "Daemon", "no machine"), Rule("open", "Pods", "not built")), {}, ())
    cases = (
        case("[sig-apps] Daemon set", "should run", Verdict.FAILED),
        case("[sig-node] Pods", "should run", Verdict.FAILED),
        case("[sig-node] Pods", "should walk", Verdict.PASSED),
    )
    shown = explained(Results(cases, 61, CONDITIONS), listed).cases
    assert [(each.verdict, each.why) for each in shown] == [
        (Verdict.REFUSED, "no machine"),
        (Verdict.FAILED, "not built"),
        (Verdict.PASSED, ""),
    ]


def test_the_published_page_is_made_from_the_published_results() -> None:
    assert PAGE.read_text() == page(Results.read(STORED)), "run `make figures`"
