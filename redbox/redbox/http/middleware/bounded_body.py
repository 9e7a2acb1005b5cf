"""A request's JSON is bounded and paid for before it is parsed and validated.

Bodies above LARGE_BYTES are worked on in a thread: Python's validators and the hook of each object let the
event loop run meanwhile. One of a caller at a time, so that a caller with many of them delays itself.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request

from redbox.core.turns import in_thread_of
from redbox.http.answers.bounded_json import count_values, validated
from redbox.http.middleware.cost_budget import BYTES_PER_VALUE, CostBudget
from redbox_shared.keyed_semaphores import KeyedSemaphores

LARGE_BYTES = 16 << 10
_turns = KeyedSemaphores[str](1)


class BoundedRequest(Request):
    """A request whose `json` is the route's own model, which FastAPI then takes as it is."""

    def __init__(self, request: Request, adapter: TypeAdapter[Any], costs: CostBudget) -> None:
        super().__init__(request.scope, request.receive)
        self._adapter = adapter
        self._costs = costs

    async def json(self) -> object:
        """Raises a problem."""
        body = await self.body()
        if len(body) <= LARGE_BYTES:
            self._charge(body)
            self._charge_values(count_values(body))
            return validated(self._adapter, body)
        caller = self.state.caller.name
        async with _turns.of(caller):
            self._charge(body)
            self._charge_values(await in_thread_of(caller, partial(count_values, body)))
            return await in_thread_of(caller, partial(validated, self._adapter, body))

    def _charge(self, body: bytes) -> None:
        self._costs.charge(self.state.caller, len(body))

    def _charge_values(self, count: int) -> None:
        """Whatever is left: it has passed, and else would pay for its bytes at each try."""
        self._costs.overdraw(self.state.caller, BYTES_PER_VALUE * count)
