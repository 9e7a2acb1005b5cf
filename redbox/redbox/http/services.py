"""Dependencies of the routes: the services, passed in by the server or a test, and parts of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Path
from fastapi import Query as QueryParameter
from starlette.requests import Request

from redbox.core.domain import Caller, JobRef, Owner
from redbox.files.service import JobFileService
from redbox.http.answers.problems import UnprocessableProblem
from redbox.http.middleware.body_budget import BodyBudget
from redbox.http.middleware.rejected_callers import RejectionAudit
from redbox.http.middleware.request_middleware import RequestCounter
from redbox.http.middleware.stream_limits import StreamLimits
from redbox.http.middleware.stream_reauthorization import CallerAuthenticator, StreamReauthorization
from redbox.jobs.service import JobService
from redbox.jobs.usage import UsageOfJobs
from redbox.logs.job_logs import JobLogReader
from redbox_api.models import KEY_PATTERN

NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"


class HttpMetrics(RequestCounter, Protocol):
    """The metrics that the routes count and serve."""

    def bytes_relayed(self, count: int) -> None: ...

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        ...


class Readiness(Protocol):
    """Whether this red-box can take requests."""

    def unready(self) -> str | None:
        """Return the reason, or None if it is ready."""
        ...

    def warnings(self) -> Sequence[str]:
        """Return the problems that do not make it unready, each in a sentence."""
        ...


@dataclass(frozen=True)
class Services:
    """All services that the routes use."""

    authenticator: CallerAuthenticator
    jobs: JobService
    logs: JobLogReader
    files: JobFileService
    usage: UsageOfJobs
    metrics: HttpMetrics
    readiness: Readiness
    streams: StreamLimits
    reauthorization: StreamReauthorization
    rejections: RejectionAudit
    bodies: BodyBudget = field(default_factory=BodyBudget)
    body_limit: int = 8 << 20
    stall_s: float = 60.0  # a reader that takes nothing for so long is disconnected


# These are async although nothing here waits: FastAPI would run plain functions in threads.


async def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def caller_of(request: Request) -> Caller:
    """Return the caller that `AuthenticatedRoute` authenticated."""
    caller: Caller = request.state.caller
    return caller


Namespace = Annotated[
    str | None,
    QueryParameter(
        min_length=1,
        max_length=253,
        pattern=NO_CONTROL,
        description="For operators: whose job, with `account`.",
    ),
]
Account = Annotated[
    str | None,
    QueryParameter(
        min_length=1,
        max_length=253,
        pattern=NO_CONTROL,
        description="For operators: whose job, with `namespace`.",
    ),
]


async def requested_owner(
    caller: Annotated[Caller, Depends(caller_of)], namespace: Namespace = None, account: Account = None
) -> Owner | None:
    """Return the owner that an operator names; `jobs` rejects other callers that name one."""
    if namespace is None and account is None:
        return None
    if namespace is None or account is None:
        raise UnprocessableProblem("namespace and account name an owner together: give both, or neither")
    return Owner(caller.owner.cluster, namespace, account)


Key = Annotated[str, Path(pattern=KEY_PATTERN, description="The caller's own name for the job.")]
Attempt = Annotated[int, QueryParameter(ge=1, le=1_000_000)]


async def job_ref(caller: Annotated[Caller, Depends(caller_of)], key: Key, attempt: Attempt = 1) -> JobRef:
    return JobRef(caller, key, attempt)


JobRefDep = Annotated[JobRef, Depends(job_ref)]
ServicesDep = Annotated[Services, Depends(services_of)]
CallerDep = Annotated[Caller, Depends(caller_of)]
OwnerDep = Annotated[Owner | None, Depends(requested_owner)]
