"""The list of cases: it fits the suite, or it says where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.cases import Case, CaseList, CaseListError, Rule, conformance_cases, focus

PODS = Case("[sig-node] Pods should run (once) [Conformance]", "[sig-node] Pods")
HOOKS = Case("[sig-node] Hooks should run [Conformance]", "[sig-node] Hooks")
DAEMONS = Case("[sig-apps] Daemon set should run [Conformance]", "[sig-apps] Daemon set")
CASES = [DAEMONS, HOOKS, PODS]
REFUSED = Rule("refused", "Daemon set", "no machine")
OPEN = Rule("open", "Hooks", "not built")


def listed(*rules: Rule, web: tuple[str, ...] = (), short: tuple[str, ...] = ()) -> CaseList:
    return CaseList(rules, {"web": web}, short)


def test_what_is_refused_is_not_run_and_what_is_open_is() -> None:
    chosen = listed(REFUSED, OPEN)
    chosen.check(CASES)
    assert [case for case in CASES if chosen.is_run(case.name)] == [HOOKS, PODS]
    assert chosen.why("refused", DAEMONS.name) == "no machine"
    assert not chosen.why("open", DAEMONS.name)


@pytest.mark.parametrize(
    ("chosen", "fault"),
    [
        (listed(Rule("refused", "Daemon sets", "no machine")), "no case matches Daemon sets"),
        (listed(web=("Probe",)), "no case matches Probe"),
        (listed(REFUSED, Rule("open", "Daemon", "not built")), "in open and refused: .*Daemon set"),
        (listed(short=("Hooks|Pods",)), "one case that is run"),
        (listed(REFUSED, short=("Daemon",)), "one case that is run"),
    ],
)
def test_a_list_that_does_not_fit_the_suite_is_refused(chosen: CaseList, fault: str) -> None:
    with pytest.raises(CaseListError, match=fault):
        chosen.check(CASES)


def test_cases_are_those_of_conformance_by_their_whole_names() -> None:
    specs: list[dict[str, Any]] = [
        {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "should run (once) [Conformance]"},
        {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "should sleep [NodeConformance]"},
        {"ContainerHierarchyTexts": None, "LeafNodeText": ""},
    ]
    assert conformance_cases(specs) == [PODS]


def test_a_focus_matches_names_as_they_are_written() -> None:
    assert focus([PODS]) == r"\[sig-node\] Pods should run \(once\) \[Conformance\]"


def test_the_list_in_the_tree_can_be_read() -> None:
    chosen = CaseList.read()
    assert len(chosen.short) == 20
    assert all(rule.why for rule in chosen.rules)
