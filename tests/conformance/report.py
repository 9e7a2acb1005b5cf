"""The results as tables: of the terminal, and of the page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.markup import escape
from rich.table import Table

from tests.conformance.cases import CONFORMANCE
from tests.conformance.results import Result, Results, Verdict

COUNTED = (Verdict.PASSED, Verdict.REFUSED, Verdict.FAILED)
TAGS = (CONFORMANCE, "[NodeConformance]", "[LinuxOnly]", "[Slow]", "[Serial]")


def by_area(results: Results) -> dict[str, list[Result]]:
    """Of the cases that count, in the order of the areas' names."""
    areas: dict[str, list[Result]] = {}
    for case in sorted(results.of(*COUNTED), key=lambda case: case.area):
        areas.setdefault(case.area, []).append(case)
    return areas


def counts(cases: Iterable[Result]) -> list[int]:
    """As COUNTED has them."""
    verdicts = [case.verdict for case in cases]
    return [verdicts.count(verdict) for verdict in COUNTED]


def headline(results: Results) -> str:
    passed, refused, failed = counts(results.cases)
    minutes, seconds = divmod(round(results.seconds), 60)
    return (
        f"{passed} of {passed + failed} cases pass as Kubernetes wrote them, in {minutes} min {seconds} s; "
        f"{refused} more are refused by design"
    )


def table(results: Results) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    shown.add_column("area")
    for verdict in COUNTED:
        shown.add_column(verdict, justify="right")
    for area, cases in by_area(results).items():
        shown.add_row(escape(area), *map(str, counts(cases)))
    shown.add_row("all", *map(str, counts(results.cases)), style="bold")
    return shown


def summary(results: Results) -> Iterator[str]:
    """What failed and what is refused, each with its reason; what the list does not expect comes last."""
    yield headline(results)
    for why, cases in by_reason(results.of(Verdict.REFUSED)).items():
        yield f"refused: {why} ({len(cases)})"
    for case in results.of(Verdict.FAILED):
        yield f"failed: {case.name}\n    {case.why or 'not in the list'}\n    {case.message}"
    for case in results.of(Verdict.PASSED):
        if case.is_unexpected:
            yield f"passes, and has to leave the list of open cases: {case.name}"


def by_reason(cases: Iterable[Result]) -> Mapping[str, list[Result]]:
    reasons: dict[str, list[Result]] = {}
    for case in cases:
        reasons.setdefault(case.why, []).append(case)
    return reasons


def bare_name(case: Result) -> str:
    """Without its area and its tags."""
    name = case.name.removeprefix(case.area)
    for tag in TAGS:
        name = name.replace(tag, "")
    return " ".join(name.split())
