"""Authentication before every route but `/healthz` and `/readyz`.

Nothing of a request is read before its caller is authenticated. A query parameter that the route does not
have is rejected by name: a misspelt `allAtempts=true` would otherwise cancel one attempt and report success.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from redbox.callers.errors import NotMapped, Unauthenticated
from redbox.callers.peers import connection_in
from redbox.core.domain import Caller
from redbox.http.answers.problems import TooManyRequestsProblem, UnprocessableProblem, problem_responses
from redbox.http.middleware.bounded_body import BoundedRequest

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
MOST_PARAMETERS = 200
"""Of a query: 64 globs, or 50 jobs, and some more."""
LONGEST_NAME = 253
"""Of a namespace."""
COMMON_STATUSES = (401, 403, 422, 429, 500, 503)
"""The problems of every route that authenticates its caller."""


def authenticated_router(tag: str) -> APIRouter:
    responses = problem_responses(*COMMON_STATUSES)
    return APIRouter(tags=[tag], route_class=AuthenticatedRoute, responses=responses)


class AuthenticatedRoute(APIRoute):
    """A route whose handler finds its caller in `request.state.caller`."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        allowed = frozenset(_query_names(self.dependant))
        model = self.body_field.field_info.annotation if self.body_field else None
        body = TypeAdapter[Any](model) if model is not None else None

        async def authenticate_and_handle(request: Request) -> Response:
            caller = None
            services = request.app.state.services
            try:
                caller = request.state.caller = await services.authenticator.authenticate(request)
                _limit_connections(request, caller)
                _reject_unknown_parameters(request, allowed)
                if body is not None:  # before a byte of it is read
                    services.body_costs.refuse_overdrawn(caller, _announced_length(request))
                if request.method != "GET":
                    services.writes.charge(caller, kind=_kind_of_write(request, caller))
                if body is not None:
                    request = BoundedRequest(request, body, services.body_costs)
                return await handle(request)
            except (Unauthenticated, NotMapped, TooManyRequestsProblem) as error:
                services.rejections.record(request, error, caller)
                raise

        return authenticate_and_handle


def _kind_of_write(request: Request, caller: Caller) -> str:
    """The method; with the namespace that a service acts for, so that none delays another's deletions.

    Not with the account: the users of a namespace name accounts as they please.
    """
    namespace = "" if caller.user is not None else request.query_params.get("namespace", "")
    return f"{request.method} {namespace[:LONGEST_NAME]} "


async def authenticated_caller(connection: HTTPConnection, allowed: frozenset[str]) -> Caller:
    """The caller of an upgrade, before anything of it is read; `allowed` are its query parameters."""
    caller: Caller | None = None
    services = connection.app.state.services
    try:
        caller = await services.authenticator.authenticate(connection)
        assert caller is not None  # noqa: S101 # for the type checker
        _limit_connections(connection, caller)
        _reject_unknown_parameters(connection, allowed)
    except (Unauthenticated, NotMapped, TooManyRequestsProblem) as error:
        services.rejections.record(connection, error, caller)
        raise
    connection.state.caller = caller
    return caller


def _announced_length(request: Request) -> float:
    length = request.headers.get("content-length", "")
    return float(length) if length.isdecimal() else 1.0


def _limit_connections(request: HTTPConnection, caller: Caller) -> None:
    connection = connection_in(request.scope)
    if connection is not None and not connection.assign(caller.name):
        raise TooManyRequestsProblem(
            f"{caller.name} has too many connections open; close some", retry_after=5
        )


def _reject_unknown_parameters(request: HTTPConnection, allowed: frozenset[str]) -> None:
    if request.scope["query_string"].count(b"&") >= MOST_PARAMETERS:  # a head of 64 KiB has 32,000
        raise UnprocessableProblem(f"the query has more than {MOST_PARAMETERS} parameters")
    unknown = sorted(set(request.query_params) - allowed)
    if unknown:
        names = ", ".join(sorted(allowed)) or "none"
        raise UnprocessableProblem(
            f"{unknown[0][:64]} is not a query parameter of this request (allowed: {names})"
        )


def _query_names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        annotation = parameter.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from (field.alias or name for name, field in annotation.model_fields.items())
        else:
            yield parameter.alias
    for dependency in dependant.dependencies:
        yield from _query_names(dependency)
