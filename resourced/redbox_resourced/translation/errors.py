"""What no job can have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from redbox_api.job_parts import TIME_PATTERN
from redbox_api.pod_parts import ABSOLUTE_PATTERN

CURES = {
    TIME_PATTERN: "write a time as sbatch takes it: 90 (minutes), 2:00:00, 1-12:00:00 or UNLIMITED",
    ABSOLUTE_PATTERN: "write an absolute path without line breaks",
    "string_too_long": "it is too long: write at most {max_length} characters",
    "too_long": "there are too many: write at most {max_length}",
    "string_too_short": "it is empty: leave it out, or give it a value",
    "too_short": "it is empty: leave it out, or give it a value",
    "greater_than_equal": "it is too small: write {ge} or more",
    "less_than_equal": "it is too large: write {le} or less",
    "literal_error": "it has a value that is not known: write {expected}",
}
"""By the pattern or the kind of what a request's model refuses."""
NO_NEWLINES = re.compile(r"\^\[\^\\x00")


UNSUPPORTED, OS_UNSUPPORTED = "Unsupported", "PodOSNotSupported"


class Unsupported(Exception):
    """A field or a value that no job can have; the message is a sentence with the field's name."""

    def __init__(self, sentence: str, reason: str = UNSUPPORTED) -> None:
        super().__init__(sentence)
        self.reason = reason
        """Of the pod that fails."""


@contextmanager
def refusals_of(field: str, paths: Mapping[str, str] | None = None) -> Iterator[None]:
    """What the request's models refuse, by the pod's field and without the value: it may be a secret.

    `paths` has the pod's own paths of fields that the model names otherwise; the others are below `field`.
    """
    try:
        yield
    except ValidationError as error:
        flaw = error.errors(include_url=False, include_input=False)[0]
        raise Unsupported(f"{_path_of(flaw['loc'], field, paths or {})}: {_cure_of(flaw)}") from None


def _path_of(location: Sequence[int | str], field: str, paths: Mapping[str, str]) -> str:
    if not location:
        return field
    first, *others = location
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in others]
    return "".join((paths.get(str(first), f"{field}.{first}"), *parts))


def _cure_of(flaw: Mapping[str, Any]) -> str:
    context = flaw.get("ctx") or {}
    pattern = str(context.get("pattern", ""))
    if cure := CURES.get(pattern or flaw["type"]):
        return cure.format_map(context)
    if NO_NEWLINES.match(pattern):
        return "it has a line break or a control character: leave it out"
    if pattern:
        return f"write it in the form {pattern.removeprefix('^').removesuffix('$')}"
    return str(flaw["msg"]).removeprefix("Value error, ")
