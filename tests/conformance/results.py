"""How each case ended: passed as written, refused by design, or failed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case, CaseList, name_of
from tests.conformance.pods_watch import PodsOfNamespace
from tests.conformance.suite import messages

NANOSECONDS = 1e9
LONGEST_MESSAGE = 600
_NAMESPACE = re.compile(r'Destroying namespace "([a-z0-9-]+)"')


class Verdict(StrEnum):
    """Of a case; the names are those of the table."""

    PASSED = "as written"
    REFUSED = "refused"
    FAILED = "failed"
    OUTSIDE = "outside"


SECTION_VERDICTS = {"outside": Verdict.OUTSIDE, "refused": Verdict.REFUSED}


@dataclass(frozen=True)
class Result:
    """Of one case; `why` is the list's reason, `message` what the suite or the watch of its pods says."""

    name: str
    area: str
    verdict: Verdict
    why: str = ""
    message: str = ""
    seconds: float = 0

    @property
    def is_unexpected(self) -> bool:
        """Whether the list has to change: a failure without a reason, or a reason without a failure."""
        was_run = self.verdict in {Verdict.PASSED, Verdict.FAILED}
        return was_run and (self.verdict is Verdict.FAILED) != bool(self.why)


@dataclass(frozen=True)
class Results:
    """All cases of a run, and its conditions."""

    cases: tuple[Result, ...]
    seconds: float
    conditions: Mapping[str, Any]

    def of(self, *verdicts: Verdict) -> list[Result]:
        return [case for case in self.cases if case.verdict in verdicts]

    def store(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {
            "seconds": self.seconds,
            "conditions": self.conditions,
            "cases": [asdict(row) for row in self.cases],
        }
        path.write_text(json.dumps(rows, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        stored = json.loads(path.read_text())
        cases = (Result(**{**row, "verdict": Verdict(row["verdict"])}) for row in stored["cases"])
        return cls(tuple(cases), stored["seconds"], stored["conditions"])


def judge(
    cases: Sequence[Case],
    chosen: CaseList,
    specs: Iterable[Mapping[str, Any]],
    pods_of: Callable[[Iterable[str]], PodsOfNamespace],
) -> list[Result]:
    """The result of each case that was to be run, and the reason why each other one was not."""
    by_name = {name_of(spec): spec for spec in specs}
    return [_result(case, chosen, by_name.get(case.name), pods_of) for case in cases]


def _result(
    case: Case,
    chosen: CaseList,
    spec: Mapping[str, Any] | None,
    pods_of: Callable[[Iterable[str]], PodsOfNamespace],
) -> Result:
    for section, verdict in SECTION_VERDICTS.items():
        if why := chosen.why(section, case.name):
            return Result(case.name, case.area, verdict, why)
    why = chosen.why("open", case.name)
    if spec is None:
        return Result(case.name, case.area, Verdict.FAILED, why, "was not run to its end")
    fault = _fault(spec, pods_of(namespaces_of(spec)))
    verdict = Verdict.FAILED if fault else Verdict.PASSED
    return Result(case.name, case.area, verdict, why, fault, round(spec["RunTime"] / NANOSECONDS, 1))


def _fault(spec: Mapping[str, Any], pods: PodsOfNamespace) -> str:
    """Why it does not count as passed; empty if it does."""
    refusals = "; ".join(sorted(pods.refusals))
    if spec["State"] != "passed":
        message = (spec.get("Failure") or {}).get("Message", "")
        refused = f"refused: {refusals}. " if refusals else ""
        return _short(f"{refused}{spec['State']}: {message}")
    if refusals:
        return _short(f"passed, but a pod was refused: {refusals}")
    if pods.elsewhere:
        return f"passed, but with pods on {', '.join(pods.elsewhere)}"
    return "" if pods.ran_on_slurm else "passed without a pod on a virtual node: it belongs to `outside`"


def namespaces_of(spec: Mapping[str, Any]) -> set[str]:
    """Those that the framework made for the case."""
    return {match for text in messages(spec) for match in _NAMESPACE.findall(text)}


def _short(text: str) -> str:
    return " ".join(text.split())[:LONGEST_MESSAGE]
