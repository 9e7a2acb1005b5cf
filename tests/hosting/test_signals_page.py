"""The page of conditions, events and metrics has all that the sources name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import redbox_hosting
from redbox_hosting import signals_page
from redbox_hosting.nodeset.drains import DrainOwner

SOURCES = [*Path(redbox_hosting.__file__).parent.rglob("*.py")]


class Constants(ast.NodeVisitor):
    """Values of names that are assigned once, in a module or a function."""

    def __init__(self, tree: ast.AST) -> None:
        self.values: dict[str, ast.expr] = {}
        self.visit(tree)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.values[target.id] = node.value

    def texts(self, node: ast.expr) -> Iterator[str]:
        """Those that an expression may be; none of what is computed elsewhere."""
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.IfExp():
                yield from self.texts(node.body)
                yield from self.texts(node.orelse)
            case ast.Name() if node.id in self.values:
                yield from self.texts(self.values[node.id])


def arguments_of(called: str, number: int) -> Iterator[str]:
    """The texts that this argument of each call may be; of a tuple its first."""
    for source in SOURCES:
        tree = ast.parse(source.read_text())
        constants = Constants(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == called:
                argument = node.args[number]
                yield from constants.texts(argument.elts[0] if isinstance(argument, ast.Tuple) else argument)


def listed(texts: str) -> set[str]:
    return set(texts.split(", "))


def test_each_step_has_its_meaning_and_no_other() -> None:
    for each in signals_page._operator().controllers:
        assert list(signals_page.STEP_MEANINGS[str(each.kind)]) == each.step_names


def test_each_condition_with_its_reasons_is_on_the_page() -> None:
    rows = signals_page.OTHER_CONDITIONS
    types, reasons = set(arguments_of("NewCondition", 0)), set(arguments_of("NewCondition", 1))
    assert types | {"Ready", "Observed"} == {row[1] for row in rows}
    assert reasons | {"NotObserved", "Failed"} == set().union(*(listed(row[2]) for row in rows))


def test_each_reason_of_a_pods_condition_is_on_the_page() -> None:
    reasons = {*arguments_of("PodCondition", 1), *DrainOwner}
    assert reasons == set(signals_page.POD_REASONS)


def test_each_other_event_is_on_the_page() -> None:
    assert {*arguments_of("publish", 4)} == {row[1] for row in signals_page.OTHER_EVENTS}


@pytest.mark.parametrize(
    "row",
    [
        "| Controller | `Image` | the image names a known release of Slurm |",
        "| `redbox_controller_queue_depth` | gauge | controller | Objects that wait or are reconciled now. |",
        "| NodeSet | `JobsLost` | Warning | a worker ended with jobs on it, which are named |",
    ],
)
def test_the_page_has_a_row_for_each(row: str) -> None:
    assert row in signals_page.signals_page().splitlines()
