"""What no job can have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError


class Unsupported(Exception):
    """A field or a value that no job can have; the message is a sentence with the field's name."""


@contextmanager
def refusals_of(field: str) -> Iterator[None]:
    """What the request's models refuse, by the pod's field and without the value: it may be a secret."""
    try:
        yield
    except ValidationError as error:
        flaw = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, (field, *flaw["loc"])))
        raise Unsupported(f"{path}: {flaw['msg']}") from None
