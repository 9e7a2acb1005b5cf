"""Dependencies of the routes: the services, passed in by the server or a test, and parts of a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Path
from fastapi import Query as QueryParameter
from starlette.requests import Request

from redbox.callers.authenticator import Authenticator
from redbox.core.domain import Caller, JobRef, Owner
from redbox.core.gauges import MetricSource
from redbox.core.token_buckets import Rate
from redbox.files.service import JobFileService
from redbox.http.answers.problems import UnprocessableProblem
from redbox.http.metrics import ServerMetrics
from redbox.http.middleware.bounded_body import LARGE_BYTES
from redbox.http.middleware.caller_budget import CallerBudget, bodies_budget
from redbox.http.middleware.cost_budget import CostBudget, body_costs_budget, writes_budget
from redbox.http.middleware.rejected_callers import RejectionAudit
from redbox.http.middleware.stream_reauthorization import StreamReauthorization
from redbox.jobs.expected_starts import ExpectedStarts
from redbox.jobs.service import JobService
from redbox.jobs.usage import UsageOfJobs
from redbox.logs.job_logs import JobLogReader
from redbox.sessions.service import SessionService
from redbox.volumes.service import VolumeService
from redbox_api.models import KEY_PATTERN

NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"


class Readiness:
    """Red-box is ready as long as its background task runs."""

    def __init__(self, jobs: JobService, authenticator: Authenticator) -> None:
        self._jobs = jobs
        self._authenticator = authenticator

    def unready(self) -> str | None:
        """The reason. Stale states are none: submits still work, and each state carries its age."""
        return None if self._jobs.alive else "the background task has ended: see the log"

    def warnings(self) -> list[str]:
        """Problems that do not make it unready."""
        since = self._jobs.stale_since
        stale = [f"Slurm does not answer: states are as of {since:%H:%M:%S} UTC"] if since else []
        return [*stale, *self._authenticator.warnings()]


@dataclass(frozen=True)
class Services:
    """All services that the routes use."""

    authenticator: Authenticator
    jobs: JobService
    logs: JobLogReader
    files: JobFileService
    sessions: SessionService
    volumes: VolumeService
    usage: UsageOfJobs
    expected_starts: ExpectedStarts
    metrics: ServerMetrics
    readiness: Readiness
    credentials_expire_at: Callable[[], float | None]
    streams: CallerBudget
    reauthorization: StreamReauthorization
    rejections: RejectionAudit
    slurm_metrics: MetricSource
    bodies: CallerBudget = field(default_factory=lambda: bodies_budget(0))
    body_limit: int = 8 << 20
    body_costs: CostBudget = field(default_factory=body_costs_budget)
    writes: CostBudget = field(default_factory=lambda: writes_budget(Rate(20.0, 1000.0)))
    stall_s: float = 60.0  # a reader that takes nothing for so long is disconnected


# These are async although nothing here waits: FastAPI would run plain functions in threads.


async def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def caller_of(request: Request) -> Caller:
    """Return the caller that `AuthenticatedRoute` authenticated."""
    caller: Caller = request.state.caller
    return caller


async def body_is_large(request: Request) -> bool:
    """Return whether the work on its body is done in a thread."""
    return len(await request.body()) > LARGE_BYTES


OwnerName = Annotated[
    str | None,
    QueryParameter(
        min_length=1,
        max_length=253,
        pattern=NO_CONTROL,
        description="For operators: whose job, by `namespace` and `account` together.",
    ),
]


async def requested_owner(
    caller: Annotated[Caller, Depends(caller_of)], namespace: OwnerName = None, account: OwnerName = None
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
IsLargeDep = Annotated[bool, Depends(body_is_large)]
OwnerDep = Annotated[Owner | None, Depends(requested_owner)]
