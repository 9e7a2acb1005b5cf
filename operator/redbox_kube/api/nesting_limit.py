"""Parsing of JSON from the API server that is nested deeper than parsers can follow.

Any author of an object can nest it ten thousand levels, in a field without a schema or in its managedFields;
our parsers follow some hundred or a thousand. No field that we read is nested so deep.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST = 100
PARSEABLE = 300  # brackets, by every parser and copier; Python's recursion ends after a thousand calls
BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')  # skips brackets in strings


def parsed(raw: bytes | str) -> Any:  # noqa: ANN401 (any JSON)
    """As `json.loads`, for anything that the API server accepts."""
    try:
        return json.loads(raw)
    except RecursionError:
        return json.loads(shallow(raw.encode() if isinstance(raw, str) else raw))


def bounded(raw: bytes) -> bytes:
    """The same JSON for another parser: shallow, if it could be deep."""
    return shallow(raw) if raw.count(b"[") + raw.count(b"{") > PARSEABLE else raw


def shallow(raw: bytes) -> bytes:
    """The same JSON with null in the place of what is nested deeper than `DEEPEST`."""
    kept: list[bytes] = []
    depth = kept_up_to = 0
    for found in BRACKETS.finditer(raw):
        match found[0]:
            case b"[" | b"{":
                depth += 1
                if depth == DEEPEST + 1:
                    kept += [raw[kept_up_to : found.start()], b"null"]
            case b"]" | b"}":
                if depth == DEEPEST + 1:
                    kept_up_to = found.end()
                depth -= 1
    return b"".join([*kept, raw[kept_up_to:]])
