"""The application: its routes, and how each error of the parts below becomes a problem document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from redbox.agents import errors as agent_errors
from redbox.callers import errors as caller_errors
from redbox.core.workload_manager import WorkloadManagerError
from redbox.http.answers import problems
from redbox.http.answers.streaming import CallerLeft
from redbox.http.middleware.request_middleware import Seen, id_of
from redbox.http.openapi import describe
from redbox.http.routes import cluster, files, jobs, logs, usage
from redbox.http.services import Services
from redbox.jobs import errors as job_errors
from redbox.logs import interfaces as log_errors

log = structlog.get_logger(__name__)
RETRY_AFTER_S = 2.0
CLIENT_CLOSED = 499  # nginx's number for it; nobody reads the answer, the log does

Made = Callable[[Any], problems.ProblemError]


def build_app(services: Services) -> FastAPI:
    """Join the routes to the services."""
    app = bare_app()
    app.state.services = services
    app.add_middleware(Seen, counter=services.metrics, body_limit=services.body_limit, budget=services.bodies)
    _translate_errors(app)
    return app


def bare_app() -> FastAPI:
    """The routes with nothing behind them, which is enough to describe them."""
    app = FastAPI(
        title="red-box",
        version=version("red-box"),
        summary="Runs Slurm jobs for callers from Kubernetes, each as its own Unix user.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    for module in (jobs, usage, logs, files, cluster):
        app.include_router(module.router)
    app.include_router(cluster.open_to_all)
    describe(app)
    return app


def _translate_errors(app: FastAPI) -> None:
    for error, make in _MADE_FROM.items():
        app.add_exception_handler(error, _handler(make))
    for left in (CallerLeft, ClientDisconnect):
        app.add_exception_handler(left, _left)


def _handler(make: Made) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(
        request: Request, error: Exception
    ) -> Response:  # async: Starlette runs others in threads
        problem = make(error)
        if isinstance(problem, problems.Broken):
            log.error("defect", path=request.url.path, request_id=id_of(request.scope), exc_info=error)
        return problems.problem_response(problem, id_of(request.scope))

    return answer


async def _left(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED)


def _plain(kind: type[problems.ProblemError]) -> Made:
    """The error's own sentence in a problem of this kind."""
    return lambda error: kind(str(error))


def _later(kind: type[problems.ProblemError]) -> Made:
    """The same, with whether and when to ask again: the error knows best."""

    def make(error: Exception) -> problems.ProblemError:
        retry = bool(getattr(error, "retry", kind.retry))
        after = getattr(error, "retry_after", None) or getattr(error, "retry_after_s", None) or RETRY_AFTER_S
        return kind(str(error), retry=retry, retry_after=after if retry else None)

    return make


def _of_the_system(fault: agent_errors.SystemFault) -> problems.ProblemError:
    """The kernel's word to the job's user."""
    if fault.is_missing:
        return problems.NotFound(str(fault))
    return (problems.NotAllowed if fault.is_denied else problems.NotAccepted)(str(fault))


def _broken(_: Exception) -> problems.ProblemError:
    return problems.Broken("its log says more under this request id; ask again, and tell the administrator")


_MADE_FROM: dict[type[Exception], Made] = {
    HTTPException: problems.as_problem,
    RequestValidationError: problems.unreadable,
    caller_errors.Unauthenticated: _later(problems.NotAuthenticated),
    caller_errors.NotMapped: _plain(problems.NotAllowed),
    caller_errors.CannotTell: _later(problems.Unavailable),
    job_errors.JobNotFound: _plain(problems.NotFound),
    job_errors.Forbidden: _plain(problems.NotAllowed),
    job_errors.JobConflict: _plain(problems.Taken),
    job_errors.NotAcceptable: _plain(problems.NotAccepted),
    job_errors.JobsBusy: _later(problems.Unavailable),
    job_errors.RateLimited: _later(problems.TooMany),
    job_errors.Gone: _plain(problems.TooOld),
    job_errors.JournalError: _later(problems.Unavailable),
    log_errors.NotThere: _plain(problems.NotFound),
    log_errors.Forgotten: _plain(problems.NotFound),
    log_errors.NotReadable: _plain(problems.NotAllowed),
    log_errors.OutOfReach: _later(problems.Unavailable),
    agent_errors.AgentRefused: _plain(problems.NotAllowed),
    agent_errors.SystemFault: _of_the_system,
    agent_errors.RequestFailed: _plain(problems.NotAccepted),
    agent_errors.AgentError: _later(problems.Unavailable),
    WorkloadManagerError: _later(problems.Unavailable),
    TimeoutError: _later(problems.Unavailable),
    Exception: _broken,
}
