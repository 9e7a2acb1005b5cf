"""The application: its routes, and the problem document for each error of the layers below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.websockets import WebSocket

from redbox.agents import errors as agent_errors
from redbox.callers import errors as caller_errors
from redbox.core.workload_manager import WorkloadManagerError
from redbox.http.answers import problems
from redbox.http.answers.streaming import CallerDisconnected
from redbox.http.middleware.request_middleware import RequestMiddleware, logged_path, request_id_of
from redbox.http.openapi import describe
from redbox.http.routes import cluster, files, jobs, logs, metrics, sessions, usage, volumes
from redbox.http.services import Services
from redbox.jobs import errors as job_errors
from redbox.logs import interfaces as log_errors
from redbox.sessions import errors as session_errors
from redbox.volumes import errors as volume_errors

log = structlog.get_logger(__name__)
RETRY_AFTER_S = 2.0
CLIENT_CLOSED = 499  # nginx's number; the response reaches no caller, only the log and the metrics

ROUTERS = (
    *(module.router for module in (jobs, usage, logs, files, sessions, volumes, cluster, metrics)),
    cluster.public_router,
)
ROUTES = [route for router in ROUTERS for route in router.routes]
ToProblem = Callable[[Any], problems.HttpProblem]


def build_app(services: Services) -> FastAPI:
    app = bare_app()
    app.state.services = services
    app.add_middleware(
        RequestMiddleware, counter=services.metrics, body_limit=services.body_limit, budget=services.bodies
    )
    for route in ROUTES:
        if isinstance(route, APIRoute | APIWebSocketRoute):
            for method in getattr(route, "methods", {"GET"}):
                services.metrics.serves(method, route.path)
    for error, to_problem in _PROBLEMS.items():
        app.add_exception_handler(error, _handler(to_problem))
    for disconnect in (CallerDisconnected, ClientDisconnect):
        app.add_exception_handler(disconnect, _client_closed)
    return app


def bare_app() -> FastAPI:
    """Return the routes without services, which is enough to describe them."""
    app = FastAPI(
        title="red-box",
        version=version("red-box"),
        summary="Runs Slurm jobs for callers from Kubernetes, each as its own Unix user.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # sought at each request
        routes=ROUTES,  # as they are: include_router builds each a second time, at the first request
    )
    describe(app)
    return app


# The handlers are async although nothing in them waits: Starlette runs plain functions in threads.


def _handler(to_problem: ToProblem) -> Callable[[Any, Exception], Awaitable[Response]]:
    async def respond(request: Request | WebSocket, error: Exception) -> Response:
        problem = to_problem(error)
        request_id = request_id_of(request.scope)
        if isinstance(problem, problems.InternalErrorProblem):
            log.error("defect", path=logged_path(request), request_id=request_id, exc_info=error)
        return problems.problem_response(problem, request_id)

    return respond


async def _client_closed(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


def _permanent(kind: type[problems.HttpProblem]) -> ToProblem:
    """The error's message in a problem of this kind."""
    return lambda error: kind(str(error))


def _maybe_temporary(kind: type[problems.HttpProblem]) -> ToProblem:
    """The same with a retry, where the error does not exclude one; its own pause has precedence."""

    def to_problem(error: Exception) -> problems.HttpProblem:
        retry = bool(getattr(error, "retry", kind.retry))
        after = getattr(error, "retry_after", None) or getattr(error, "retry_after_s", None) or RETRY_AFTER_S
        return kind(str(error), retry=retry, retry_after=after if retry else None)

    return to_problem


def _system_problem(fault: agent_errors.SystemCallFailed) -> problems.HttpProblem:
    """The kernel's error for the job's user."""
    if fault.is_missing:
        return problems.NotFoundProblem(str(fault))
    return (problems.ForbiddenProblem if fault.is_denied else problems.UnprocessableProblem)(str(fault))


def _internal_error(_: Exception) -> problems.HttpProblem:
    return problems.InternalErrorProblem(
        "internal error; red-box's log has the details under this request id. Retry, and report it to the "
        "administrator"
    )


_PROBLEMS: dict[type[Exception], ToProblem] = {
    HTTPException: problems.as_problem,
    RequestValidationError: problems.validation_problem,
    caller_errors.Unauthenticated: _maybe_temporary(problems.UnauthorizedProblem),
    caller_errors.NotMapped: _permanent(problems.ForbiddenProblem),
    caller_errors.AuthenticationUnavailable: _maybe_temporary(problems.UnavailableProblem),
    job_errors.JobNotFound: _permanent(problems.NotFoundProblem),
    job_errors.Forbidden: _permanent(problems.ForbiddenProblem),
    job_errors.JobConflict: _permanent(problems.ConflictProblem),
    job_errors.NotAcceptable: _permanent(problems.UnprocessableProblem),
    job_errors.JobsBusy: _maybe_temporary(problems.UnavailableProblem),
    job_errors.RateLimited: _maybe_temporary(problems.TooManyRequestsProblem),
    job_errors.Gone: _permanent(problems.GoneProblem),
    job_errors.JournalError: _maybe_temporary(problems.UnavailableProblem),
    log_errors.LogFileMissing: _permanent(problems.NotFoundProblem),
    log_errors.NoSuchContainer: _permanent(problems.NotFoundProblem),
    log_errors.JobRecordDeleted: _permanent(problems.NotFoundProblem),
    log_errors.LogFileUnreadable: _permanent(problems.ForbiddenProblem),
    log_errors.LogFileUnavailable: _maybe_temporary(problems.UnavailableProblem),
    session_errors.SessionsBusy: _maybe_temporary(problems.TooManyRequestsProblem),
    volume_errors.VolumeNotFound: _permanent(problems.NotFoundProblem),
    volume_errors.VolumeForbidden: _permanent(problems.ForbiddenProblem),
    volume_errors.VolumeConflict: _permanent(problems.ConflictProblem),
    volume_errors.TooManyVolumes: _maybe_temporary(problems.TooManyRequestsProblem),
    volume_errors.VolumeUnavailable: _maybe_temporary(problems.UnavailableProblem),
    agent_errors.AgentRefused: _permanent(problems.ForbiddenProblem),
    agent_errors.SystemCallFailed: _system_problem,
    agent_errors.RequestFailed: _permanent(problems.UnprocessableProblem),
    agent_errors.AgentError: _maybe_temporary(problems.UnavailableProblem),
    WorkloadManagerError: _maybe_temporary(problems.UnavailableProblem),
    TimeoutError: _maybe_temporary(problems.UnavailableProblem),
    Exception: _internal_error,
}
