"""Publishes a whole run: build/conformance.json to docs/reference/conformance.json, then its page.

Run: python -m tests.conformance.publish   (make figures)
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from redbox_bed.core.places import CHECKOUT
from tests.bench.publish import machine
from tests.conformance.report import bare_name, by_area, by_reason, counts, headline
from tests.conformance.results import Result, Results, Verdict

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
        "AREAS": TABLE + "".join(_areas(results)),
        "REFUSED": "".join(_reasons(results.of(Verdict.REFUSED))),
        "FAILED": "".join(_failures(results.of(Verdict.FAILED))) or "None.\n",
        "OUTSIDE": "".join(_reasons(results.of(Verdict.OUTSIDE))),
    }
    text = TEMPLATE.read_text()
    for name, part in parts.items():
        text = text.replace("{" + name + "}", part.rstrip("\n"))
    return text


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


def publish() -> None:
    if RESULTS.exists():
        shutil.copyfile(RESULTS, STORED)
    else:
        print(
            f"{RESULTS} does not exist (`make conformance` writes it): the page is made of what is published"
        )
    PAGE.write_text(page(Results.read(STORED)))


if __name__ == "__main__":
    publish()
