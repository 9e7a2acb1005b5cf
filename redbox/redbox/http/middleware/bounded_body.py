"""A request's JSON, bounded and paid for before it is parsed and validated.

What parsing, validation and its errors cost depends on the number of values, not of bytes: 3 MiB of `{}` took
15 s and 4 GiB. So the values are counted in the raw bytes first, and the caller is charged for them.

Bodies above LARGE_BYTES are worked on in a thread: Python's validators and the hook of each object let the
event loop run meanwhile. One of a caller at a time, so that a caller with many of them delays itself.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from redbox.http.answers.problems import ContentTooLargeProblem, UnprocessableProblem
from redbox.http.answers.validation_messages import validation_message
from redbox.http.middleware.cost_budget import CostBudget, body_cost
from redbox_shared.keyed_semaphores import KeyedSemaphores

LARGE_BYTES = 64 << 10
MAX_VALUES = 100_000
"""Of a request: 25,000 files, or 33,000 variables. A ConfigMap has 1 MiB."""
MAX_MEMBERS = 2048
"""Of one object: env has 1,024 entries at most, and pydantic builds an error for each that is unknown."""
DEPTH = 7  # body, pod, containers, container, livenessProbe, httpHeaders, header
COUNTED_ROUGHLY = 10_000
"""Up to so many the separators in strings are counted, too."""
_turns = KeyedSemaphores[str](1)


class BoundedRequest(Request):
    """A request whose `json` is the route's own model, which FastAPI then takes as it is."""

    def __init__(self, request: Request, adapter: TypeAdapter[Any], costs: CostBudget) -> None:
        super().__init__(request.scope, request.receive)
        self._adapter = adapter
        self._costs = costs

    async def json(self) -> object:
        """Raises a problem, or JSONDecodeError, which FastAPI expects."""
        body = await self.body()
        caller = self.state.caller
        if len(body) <= LARGE_BYTES:
            self._costs.charge(caller, body_cost(len(body), count_values(body)))
            return validated(self._adapter, body)
        async with _turns.of(caller.name):
            self._costs.charge(caller, body_cost(len(body), await asyncio.to_thread(count_values, body)))
            return await asyncio.to_thread(validated, self._adapter, body)


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


def validated(adapter: TypeAdapter[Any], body: bytes) -> object:
    try:
        parsed = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_members)
    except RecursionError:
        raise UnprocessableProblem(f"the body is nested too deeply: {DEPTH} levels are enough") from None
    try:
        request: object = adapter.validate_python(parsed)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise UnprocessableProblem(
            validation_message([{**item, "loc": ("body", *item["loc"])} for item in errors])
        ) from None
    return request


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_MEMBERS:
        raise UnprocessableProblem(
            f"an object of the body has {len(pairs)} fields: env has at most 1024, all others fewer"
        )
    return dict(pairs)
