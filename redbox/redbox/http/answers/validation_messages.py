"""Messages for invalid requests: pydantic's errors as sentences. Pure.

Values are never repeated: one may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from redbox_api.job_parts import ENV_NAME_PATTERN, GPUS_PATTERN, MEMORY_PATTERN, TIME_PATTERN
from redbox_api.models import KEY_PATTERN
from redbox_api.pod_parts import ABSOLUTE_PATTERN, FILE_PATH_PATTERN, POD_ENV_NAME_PATTERN

MAX_ERRORS = 10  # in one message
LONGEST_NAME = 256  # of a field: a caller may send one of 8 MiB
PATTERN_MESSAGES = {
    KEY_PATTERN: "must be 1 to 64 letters, digits and dashes",
    ENV_NAME_PATTERN: "must be the name of a variable: letters, digits and _, not beginning with a digit",
    POD_ENV_NAME_PATTERN: "must be the name of a variable: 1 to 256 printable ASCII characters without =",
    TIME_PATTERN: "must be a time as sbatch takes it: 90 (minutes), 2:00:00, 1-12:00:00 or UNLIMITED",
    MEMORY_PATTERN: "must be a size as sbatch takes it: 4G, 512M (whole numbers; K, M, G or T)",
    FILE_PATH_PATTERN: "must be a path in the volume: relative, and without NUL",
    ABSOLUTE_PATTERN: "must be an absolute path without line breaks",
    GPUS_PATTERN: "must be a number of GPUs, optionally with their type: 2, a100:2",
}
SHOULD = re.compile(r"^(Input|String|Value|List|Tuple|Set|Dictionary|URL) should ")
NOT_AN_OBJECT = frozenset({"model_attributes_type", "model_type", "dict_type"})
LOCATIONS = frozenset({"body", "query", "path", "header"})
KEY_OF_A_MAP = "[key]"
ErrorDetails = Mapping[str, Any]


def validation_message(errors: Sequence[ErrorDetails]) -> str:
    """Join the errors in one line, up to MAX_ERRORS of them."""
    messages = [describe_error(error) for error in errors[:MAX_ERRORS]]
    rest = len(errors) - len(messages)
    return "; ".join([*messages, f"and {rest} more"] if rest > 0 else messages)


def describe_error(error: ErrorDetails) -> str:
    """Name the field, and what is wrong with it."""
    kind, message = str(error["type"]), str(error["msg"])
    path = _path_of(error["loc"])
    if kind == "json_invalid":
        return f"the body is not JSON: {message.removeprefix('JSON decode error')}".rstrip(": ")
    if kind == "extra_forbidden":
        return f"{path} is not a field of this request"
    if kind == "missing":
        return f"{path or 'the body'} is missing"
    if kind in NOT_AN_OBJECT and not path:
        return "the body must be one JSON object, sent with content-type: application/json"
    if kind == "string_pattern_mismatch":
        predicate = _pattern_message(str((error.get("ctx") or {}).get("pattern", "")))
    elif kind == "bool_parsing":
        predicate = "must be true or false"
    else:
        predicate = SHOULD.sub("must ", message.removeprefix("Value error, "))
    if not path:
        return predicate
    return f"{path} {predicate}" if predicate.startswith(("must ", "is ")) else f"{path}: {predicate}"


def _path_of(location: Sequence[object]) -> str:
    """The field, without the part of the request that it is in: a field may have that part's name."""
    fields = location[1:] if location and location[0] in LOCATIONS else location
    return ".".join(str(part)[:LONGEST_NAME] for part in fields if part != KEY_OF_A_MAP)


def _pattern_message(pattern: str) -> str:
    if pattern in PATTERN_MESSAGES:
        return PATTERN_MESSAGES[pattern]
    if pattern.startswith("^[^\\x00"):
        return "must not contain control characters or line breaks"
    return f"must be of the form {pattern.removeprefix('^').removesuffix('$')}"
