"""Profiles as text."""

from __future__ import annotations

from tests.bench.profiles import text_of


def test_a_function_counts_once_a_stack_and_waiting_does_not_count() -> None:
    folded = [
        "main;loop;loop;read 3",
        "main;loop;write 1",
        "main;loop;EpollSelector.select (selectors.py:1) 96",
    ]
    lines = text_of(folded).splitlines()
    assert sorted(lines[:2]) == ["100.0%  loop", "100.0%  main"]
    assert lines[2:] == [" 75.0%  read", " 25.0%  write"]
