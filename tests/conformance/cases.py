"""The cases of Kubernetes' suite, and the list of those that are not run or fail: `cases.yaml`.

A pattern that matches no case is an error: after an update of Kubernetes the list has to be read again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

LIST = Path(__file__).with_name("cases.yaml")
CONFORMANCE = "[Conformance]"
SECTIONS = ("outside", "refused", "open")


class CaseListError(Exception):
    """The list does not fit the suite."""


@dataclass(frozen=True)
class Case:
    """One case; `area` is the outermost text that groups it, as `[sig-node] Pods`."""

    name: str
    area: str


@dataclass(frozen=True)
class Rule:
    """What holds for the cases that match a pattern, and why."""

    section: str
    pattern: str
    why: str

    def matches(self, name: str) -> bool:
        return re.search(self.pattern, name) is not None


@dataclass(frozen=True)
class CaseList:
    """The list as it was read."""

    rules: tuple[Rule, ...]
    lanes: Mapping[str, Sequence[str]]
    """Patterns of the cases that run apart from the others; the last lane that matches counts."""
    short: tuple[str, ...]

    @classmethod
    def read(cls, path: Path = LIST) -> CaseList:
        content = yaml.safe_load(path.read_text())
        rules = [rule for section in SECTIONS for rule in _rules(section, content[section])]
        return cls(tuple(rules), content["lanes"], tuple(content["short"]))

    def rule_of(self, name: str) -> Rule | None:
        return next((rule for rule in self.rules if rule.matches(name)), None)

    def why(self, section: str, name: str) -> str:
        """The reason why the case is in this section; empty where it is not."""
        rule = self.rule_of(name)
        return rule.why if rule is not None and rule.section == section else ""

    def is_run(self, name: str) -> bool:
        rule = self.rule_of(name)
        return rule is None or rule.section == "open"

    def lane_of(self, name: str) -> str:
        """Empty for cases that run together."""
        matching = [
            lane for lane, patterns in self.lanes.items() if any(re.search(row, name) for row in patterns)
        ]
        return matching[-1] if matching else ""

    def short_form(self, cases: Sequence[Case]) -> list[Case]:
        return [case for case in cases if any(re.search(pattern, case.name) for pattern in self.short)]

    def check(self, cases: Sequence[Case]) -> None:
        """Raise CaseListError if the list does not fit these cases."""
        names = [case.name for case in cases]
        of_lanes = [pattern for patterns in self.lanes.values() for pattern in patterns]
        patterns = [rule.pattern for rule in self.rules] + [*of_lanes, *self.short]
        faults = [f"no case matches {pattern}" for pattern in patterns if not _matching(pattern, names)]
        for name in names:
            sections = {rule.section for rule in self.rules if rule.matches(name)}
            if len(sections) > 1:
                faults.append(f"in {' and '.join(sorted(sections))}: {name}")
        for pattern in self.short:
            matching = _matching(pattern, names)
            if len(matching) > 1 or not all(map(self.is_run, matching)):
                faults.append(f"the short form takes one case that is run for each pattern, not so {pattern}")
        if faults:
            raise CaseListError(f"{LIST.name}: " + "; ".join(faults))


def conformance_cases(reports: Iterable[Mapping[str, Any]]) -> list[Case]:
    """The [Conformance] cases of a report of ginkgo."""
    cases = [Case(name_of(spec), next(iter(spec["ContainerHierarchyTexts"] or []), "")) for spec in reports]
    return sorted((case for case in cases if CONFORMANCE in case.name), key=lambda case: case.name)


def name_of(spec: Mapping[str, Any]) -> str:
    """A case's whole name, as ginkgo's --focus compares it."""
    return " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])


def focus(cases: Iterable[Case]) -> str:
    """A regular expression of Go that matches these cases alone."""
    return "|".join(re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", case.name) for case in cases)


def _rules(section: str, groups: Iterable[Mapping[str, Any]]) -> Iterable[Rule]:
    return (Rule(section, pattern, group["why"]) for group in groups for pattern in group["cases"])


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if re.search(pattern, name)]
