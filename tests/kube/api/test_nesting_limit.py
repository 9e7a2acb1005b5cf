"""JSON that is nested deeper than our parsers follow, which any author of an object may have made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redbox_kube.api.nesting_limit import DEEPEST, PARSEABLE, bounded, parsed, shallow

DEEP = 9_990  # the API server takes ten thousand levels


def nested(levels: int, inside: str = "1") -> str:
    half = levels // 2
    return '{"a\\"[":[' * half + inside + "]}" * half


def levels_of(value: Any) -> int:
    levels = 0
    while isinstance(value, dict | list):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
        levels += 1
    return levels


def test_what_is_not_deep_is_as_it_was() -> None:
    plain = {"a": [1, {"b": "]}{[\\"}, [], {}, None], 'quo"te\\': {"[": "ü"}, "deep": json.loads(nested(90))}
    raw = json.dumps(plain).encode()
    assert parsed(raw) == plain
    assert shallow(raw) == raw


@pytest.mark.parametrize("levels", [DEEPEST, DEEPEST + 2, 1_500, DEEP])
def test_of_what_is_deep_the_upper_part_is_read_and_all_beside_it(levels: int) -> None:
    raw = f'{{"before": [1], "deep": {nested(levels)}, "more": [{nested(levels)}], "after": "x"}}'
    read = json.loads(shallow(raw.encode()))
    assert (read["before"], read["after"]) == ([1], "x")
    assert levels_of(read["deep"]) == min(levels, DEEPEST - 1)
    assert levels_of(parsed(raw.encode())["deep"]) in {levels, DEEPEST - 1}


@pytest.mark.parametrize("raw", [b"<html>", b'{"a": [', b"]" * 500, b"[" * 500, b'{"a": "half', b""])
def test_what_is_no_json_does_not_become_any(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(raw)
    with pytest.raises(ValueError, match=r"."):
        json.loads(shallow(raw))


def test_for_other_parsers_only_what_could_be_deep_is_cut() -> None:
    flat = json.dumps([[number] for number in range(PARSEABLE)]).encode()
    assert bounded(flat) == flat
    assert levels_of(json.loads(bounded(nested(DEEP).encode()))) == DEEPEST
