"""The door before every route but the two that anybody may ask.

Nothing is read of a request before its caller is known, and a query parameter that the route does not know is
refused by name: a misspelt `allAtempts=true` would else cancel one attempt and say that all was well.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from redbox.callers.errors import NotMapped, Unauthenticated
from redbox.callers.peers import connection_in
from redbox.core.domain import Caller
from redbox.http.answers.problems import NotAccepted, TooMany

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class CallersRoute(APIRoute):
    """A route for those who can say who they are."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        known = frozenset(_query_names(self.dependant))

        async def handle_known_caller(request: Request) -> Response:
            caller = None
            services = request.app.state.services
            try:
                caller = request.state.caller = await services.authenticator.authenticate(request)
                _refuse_too_many(request, caller)
                _refuse_unknown(request, known)
                return await handle(request)
            except (Unauthenticated, NotMapped, TooMany) as refusal:
                services.refusals.refused(request, refusal, caller)
                raise

        return handle_known_caller


def _refuse_too_many(request: Request, caller: Caller) -> None:
    connection = connection_in(request.scope)
    if connection is not None and not connection.assign(caller.name):
        raise TooMany(f"{caller.name} has too many connections open; close some", retry_after=5)


def _refuse_unknown(request: Request, known: frozenset[str]) -> None:
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        taken = ", ".join(sorted(known)) or "none"
        raise NotAccepted(f"{unknown[0][:64]} is no query parameter of this request (it takes {taken})")


def _query_names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        annotation = parameter.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from (field.alias or name for name, field in annotation.model_fields.items())
        else:
            yield parameter.alias
    for needed in dependant.dependencies:
        yield from _query_names(needed)
