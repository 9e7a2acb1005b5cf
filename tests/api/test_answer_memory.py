"""The memory that answers of several red-boxes have together, and how it is divided."""

from __future__ import annotations

import pytest

from redbox_api.limits.answer_limits import OutOfBounds
from redbox_api.limits.answer_memory import AnswerMemory, CommonMemory


def filled(common: CommonMemory, holder: str) -> int:
    """How much it gets, byte by byte."""
    size = 0
    while True:
        try:
            common.take(holder, 1)
        except OutOfBounds:
            return size
        size += 1


def test_each_that_takes_all_that_it_can_leaves_as_much_as_it_has() -> None:
    common = CommonMemory(1200)
    assert filled(common, "mallory") == 600
    assert filled(common, "alice") == 300
    common.give_back("mallory", 600)
    assert filled(common, "mallory") == 450
    assert common.most - common.held.total() == 450


def test_answers_of_one_holder_count_together() -> None:
    common = CommonMemory(100, "SlurmEndpoints")
    memory = AnswerMemory(common, "farm")
    with memory.answer() as first, memory.answer() as second:
        first.resize(40)
        with pytest.raises(OutOfBounds, match="answers of SlurmEndpoints fill the"):
            second.resize(11)
        first.resize(10)
        second.resize(40)
    assert not common.held


def test_without_a_common_memory_there_is_no_bound() -> None:
    with AnswerMemory().answer() as held:
        held.resize(1 << 50)
