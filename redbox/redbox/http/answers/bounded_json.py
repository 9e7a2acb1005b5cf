"""JSON of a caller as a model, with bounds on its values before it is parsed, and on its errors.

What parsing, validation and errors cost depends on the number of values, not of bytes: 3 MiB of `{}` took
15 s and 4 GiB. Pure; each refusal is a problem with one sentence.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from redbox.http.answers.problems import ContentTooLargeProblem, UnprocessableProblem
from redbox.http.answers.validation_messages import validation_message

MAX_VALUES = 100_000
"""Of a request: 25,000 files, or 33,000 variables. A ConfigMap has 1 MiB."""
MAX_MEMBERS = 2048
"""Of one object: env has 1,024 entries at most, and pydantic builds an error for each that is unknown."""
DEPTH = 7  # body, pod, containers, container, livenessProbe, httpHeaders, header
COUNTED_ROUGHLY = 500
"""Up to so many the separators in strings are counted, too."""
Model = TypeVar("Model")


def count_values(body: bytes) -> int:
    """At least as many as there are; raises ContentTooLargeProblem.

    Each value follows a comma or begins an array or an object, but the first. Escaped quotes are removed, so
    that every other piece between quotes is outside of strings.
    """
    found = _separators(body)
    if found > COUNTED_ROUGHLY:
        unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
        if unescaped.count(b'"') > 4 * MAX_VALUES:  # two for each value, and two for its name
            raise _too_many_values()
        found = _separators(b"".join(unescaped.split(b'"')[::2]))
    if found > MAX_VALUES:
        raise _too_many_values()
    return found + 1


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _too_many_values() -> ContentTooLargeProblem:
    return ContentTooLargeProblem(
        f"the body has more than {MAX_VALUES} values in JSON: put many files or variables into one file, or "
        "stage them on a volume that the cluster mounts"
    )


def validated(adapter: TypeAdapter[Model], body: bytes) -> Model:
    document = parsed(body)
    try:
        return adapter.validate_python(document)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise UnprocessableProblem(
            validation_message([{**item, "loc": ("body", *item["loc"])} for item in errors])
        ) from None


def parsed(body: bytes) -> object:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnprocessableProblem("the body is not JSON in UTF-8") from None
    try:
        document: object = json.loads(text, object_pairs_hook=_members)
    except RecursionError:
        raise UnprocessableProblem(f"the body is nested too deeply: {DEPTH} levels are enough") from None
    except json.JSONDecodeError as error:
        raise UnprocessableProblem(f"the body is not JSON: {error.msg}") from None
    except ValueError:  # int() takes no more, whose time grows with their square
        digits = sys.get_int_max_str_digits()
        raise UnprocessableProblem(f"the body has a number of more than {digits} digits") from None
    return document


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_MEMBERS:
        raise UnprocessableProblem(
            f"an object of the body has {len(pairs)} fields: env has at most 1024, all others fewer"
        )
    return dict(pairs)
