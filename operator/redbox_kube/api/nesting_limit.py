"""JSON of the API server that is nested deeper than any parser follows.

Whoever may write an object may have it nest ten thousand levels, in a field without a schema or in its
managedFields, and our parsers follow some hundred or a thousand. Nothing that is read here needs them.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST = 100
FOLLOWED = 300  # by every parser and copier; Python's recursion ends after a thousand calls
BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]')  # a bracket in a string is none


def parsed(raw: bytes | str) -> Any:  # noqa: ANN401 (whatever it is)
    """As `json.loads`, of anything that the API server takes."""
    try:
        return json.loads(raw)
    except RecursionError:
        return json.loads(shallow(raw.encode() if isinstance(raw, str) else raw))


def bounded(raw: bytes) -> bytes:
    """The same JSON, for a parser that is not ours: shallow, if it could be deep."""
    return shallow(raw) if raw.count(b"[") + raw.count(b"{") > FOLLOWED else raw


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
