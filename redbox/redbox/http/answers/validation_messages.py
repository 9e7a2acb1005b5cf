"""What is wrong with a request, in words: pydantic's findings as sentences. Pure.

Values are never repeated: one may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from redbox_api.job_parts import ENV_NAME_PATTERN, GPUS_PATTERN, MEMORY_PATTERN, TIME_PATTERN
from redbox_api.models import KEY_PATTERN

MOST_FLAWS = 10  # told in one answer
FORMS = {
    KEY_PATTERN: "must be 1 to 64 letters, digits and dashes",
    ENV_NAME_PATTERN: "is no name of a variable: letters, digits and _, and no digit first",
    TIME_PATTERN: "must be a time as sbatch takes it: 90 (minutes), 2:00:00, 1-12:00:00 or UNLIMITED",
    MEMORY_PATTERN: "must be a size as sbatch takes it: 4G, 512M (whole numbers; K, M, G or T)",
    GPUS_PATTERN: "must be a number of GPUs, after their type if need be: 2, a100:2",
}
SHOULD = re.compile(r"^(Input|String|Value|List|Tuple|Set|Dictionary|URL) should ")
NO_OBJECT = frozenset({"model_attributes_type", "model_type", "dict_type"})
PLACES = frozenset({"body", "query", "path", "header", "[key]"})
Flaw = Mapping[str, Any]


def told(flaws: Sequence[Flaw]) -> str:
    """All of them in one line, or so many that it helps."""
    said = [sentence(flaw) for flaw in flaws[:MOST_FLAWS]]
    rest = len(flaws) - len(said)
    return "; ".join([*said, f"and {rest} more"] if rest > 0 else said)


def sentence(flaw: Flaw) -> str:
    """Which field, and what is wrong with it."""
    kind, message = str(flaw["type"]), str(flaw["msg"])
    path = ".".join(str(part) for part in flaw["loc"] if part not in PLACES)
    if kind == "json_invalid":
        return f"the body is not JSON: {message.removeprefix('JSON decode error')}".rstrip(": ")
    if kind == "extra_forbidden":
        return f"{path} is not a field that red-box knows"
    if kind == "missing":
        return f"{path or 'the body'} is missing"
    if kind in NO_OBJECT and not path:
        return "the body must be one JSON object, sent with content-type: application/json"
    words = _words(kind, message, flaw.get("ctx") or {})
    return (
        f"{path} {words}" if path and words.startswith(("must ", "is ", "holds ")) else _joined(path, words)
    )


def _joined(path: str, words: str) -> str:
    return f"{path}: {words}" if path else words


def _words(kind: str, message: str, context: Mapping[str, Any]) -> str:
    if kind == "string_pattern_mismatch":
        return _of_pattern(str(context.get("pattern", "")))
    if kind == "bool_parsing":
        return "must be true or false"
    return SHOULD.sub("must ", message.removeprefix("Value error, "))


def _of_pattern(pattern: str) -> str:
    """What a text that does not match is; the pattern itself says it best where there are no words."""
    if pattern in FORMS:
        return FORMS[pattern]
    if pattern.startswith("^[^\\x00"):
        return "holds a character that it must not hold (a control character, a line's end)"
    return f"must be of the form {pattern.removeprefix('^').removesuffix('$')}"
