"""Array expressions stand for tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.slurm.text import array_expressions


@pytest.mark.parametrize(
    ("expression", "tasks"),
    [
        ("7", [7]),
        ("0-3", [0, 1, 2, 3]),
        ("4-20:2%3", [4, 6, 8, 10, 12, 14, 16, 18, 20]),
        ("12,14,16-18%3", [12, 14, 16, 17, 18]),
    ],
)
def test_an_expression_is_expanded_and_counted(expression: str, tasks: list[int]) -> None:
    assert list(array_expressions.expand(expression)) == tasks
    assert array_expressions.count(expression) == len(tasks)


@pytest.mark.parametrize("text", ["", "1-", "3-1", "0-6,...", "1-99999999999", "a", "1-2:0", "1--2"])
def test_what_is_no_expression_or_was_cut_counts_nothing(text: str) -> None:
    assert array_expressions.count(text) is None
    assert list(array_expressions.expand(text)) == []


@given(st.sets(st.integers(0, 5000), min_size=1, max_size=40))
def test_a_list_of_tasks_comes_back_whole(tasks: set[int]) -> None:
    assert set(array_expressions.expand(",".join(map(str, sorted(tasks))))) == tasks


@pytest.mark.parametrize(
    ("text", "base", "task"),
    [("36", "36", None), ("36_1", "36", "1"), ("36_[5-9%2]", "36", "5-9%2"), ("4+0", "4+0", None)],
)
def test_an_array_id_is_its_base_and_its_task(text: str, base: str, task: str | None) -> None:
    assert array_expressions.read_array_id(text) == (base, task)


def test_a_large_array_is_counted_without_being_expanded() -> None:
    assert array_expressions.count("1-4000000") == 4_000_000


@pytest.mark.parametrize(
    ("expressions", "most", "more"),
    [
        ([], 0, False),
        ([None, "7", "0-3%2"], 6, False),
        ([None, "7", "0-3%2"], 5, True),
        (["0-3,...", "N/A"], 3, False),
        (["0-4000000"] * 2, 4_000_001, True),
        (["x" + "," * 10], 9, True),
    ],
)
def test_whether_expressions_name_more_tasks_than_some(
    expressions: list[str | None], most: int, *, more: bool
) -> None:
    assert array_expressions.are_more(expressions, most) is more
