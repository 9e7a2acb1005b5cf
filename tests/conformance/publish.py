"""Publishes a whole run: build/conformance.json to docs/reference/conformance.json, then its page.

Run: python -m tests.conformance.publish   (make figures)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from redbox_bed.core.places import CHECKOUT
from tests.bench.publish import machine
from tests.conformance.cases import CaseList
from tests.conformance.report import bare_name, by_area, by_reason, counts, headline
from tests.conformance.results import SECTION_VERDICTS, Result, Results, Verdict

RESULTS = CHECKOUT / "build/conformance.json"
STORED = CHECKOUT / "docs/reference/conformance.json"
PAGE = CHECKOUT / "docs/reference/conformance.md"
TEMPLATE = Path(__file__).with_name("page.md.in")
TABLE = """\
| area | as written | refused | failed |
|---|---|---|---|
"""


def page(results: Results) -> str:
    """The template with what was measured. Pure, but for reading the template."""
    parts = {
        "HEADLINE": f"**{headline(results)}.**",
        "MACHINE": machine([{"conditions": results.conditions}]),
        "DATE": str(results.conditions["date"])[:10],
        "COMMIT": str(results.conditions["commit"]),
        "AGAIN": _again(results.conditions.get("run_again", 0)),
        "AREAS": TABLE + "".join(_areas(results)),
        "REFUSED": "".join(_reasons(results.of(Verdict.REFUSED))),
        "FAILED": "".join(_failures(results.of(Verdict.FAILED))) or "None.\n",
        "OUTSIDE": "".join(_reasons(results.of(Verdict.OUTSIDE))),
    }
    text = TEMPLATE.read_text()
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part.rstrip("\n"))
    return text


def _again(count: int) -> str:
    return f" {count} cases that the bed or a repair had changed were run again afterwards." if count else ""


def _areas(results: Results) -> Iterator[str]:
    for area, cases in by_area(results).items():
        yield _row(area, *map(str, counts(cases)))
    yield _row("**all**", *(f"**{count}**" for count in counts(results.cases)))


def _reasons(cases: list[Result]) -> Iterator[str]:
    for why, found in by_reason(cases).items():
        areas = ", ".join(sorted({case.area.partition("] ")[2] or case.area for case in found}))
        yield f"- {why}: {len(found)} of {areas}.\n"


def _failures(cases: list[Result]) -> Iterator[str]:
    for why, found in by_reason(cases).items():
        names = "; ".join(f"{case.area.partition('] ')[2]} *{bare_name(case)}*" for case in found)
        yield f"- {why or 'Not explained yet'}: {names}.\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def merged(before: Results, newer: Results) -> Results:
    """Cases that were run again replace those of the same name, and are counted; others stay as they were."""
    again = {case.name: case for case in newer.of(Verdict.PASSED, Verdict.FAILED)}
    cases = tuple(again.get(case.name, case) for case in before.cases)
    return Results(cases, before.seconds, {**before.conditions, "run_again": len(again)})


def explained(results: Results, listed: CaseList) -> Results:
    """By today's list, which may be younger than the run."""
    return replace(results, cases=tuple(_explained(case, listed) for case in results.cases))


def _explained(case: Result, listed: CaseList) -> Result:
    rule = listed.rule_of(case.name)
    if rule is not None and rule.section in SECTION_VERDICTS:
        return replace(case, verdict=SECTION_VERDICTS[rule.section], why=rule.why)
    return replace(case, why=rule.why if rule is not None and case.verdict is Verdict.FAILED else "")


def publish(
    results: Annotated[list[Path] | None, typer.Argument(exists=True, help="Of `make conformance`.")] = None,
) -> None:
    """Take over a whole run, then the cases that later files have of it."""
    if not results and not RESULTS.exists():
        print(
            f"{RESULTS} does not exist (`make conformance` writes it): the page is made of what is published"
        )
    paths = results or [RESULTS if RESULTS.exists() else STORED]
    whole, *parts = (Results.read(path) for path in paths)
    for part in parts:
        whole = merged(whole, part)
    whole = explained(whole, CaseList.read())
    whole.store(STORED)
    PAGE.write_text(page(whole))


if __name__ == "__main__":
    typer.run(publish)
