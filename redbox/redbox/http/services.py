"""What the routes stand on: made elsewhere and handed in, so that a test may hand in its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Path
from fastapi import Query as QueryParameter
from starlette.requests import Request

from redbox.core.domain import Caller, JobRef, Owner
from redbox.files.service import Download, Part
from redbox.http.answers.problems import NotAccepted
from redbox.http.middleware.body_budget import BodyBudget
from redbox.http.middleware.rejected_callers import Refusals
from redbox.http.middleware.request_middleware import RequestCounter
from redbox.http.middleware.stream_limits import StreamLimits
from redbox.http.middleware.stream_reauthorization import Door, Renewals
from redbox.jobs.service import JobService
from redbox.logs.service import Answer, Query
from redbox_api.files import FileList
from redbox_api.models import KEY_PATTERN
from redbox_api.usage import UsageList

NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"


class JobLogs(Protocol):
    """Logs of a caller's jobs."""

    def read(
        self, asked: JobRef, stream: str, task: int | None, query: Query
    ) -> AbstractAsyncContextManager[Answer]:
        """Where an answer begins, and its bytes."""
        ...


class JobFiles(Protocol):
    """Files of a caller's jobs, in their working directories, with their users' rights."""

    async def find(self, asked: JobRef, patterns: list[str]) -> FileList:
        """What the globs find."""
        ...

    async def download(self, asked: JobRef, path: str, part: Part) -> Download:
        """One file, or a part of it."""
        ...

    async def archive(self, asked: JobRef, patterns: list[str]) -> AsyncIterator[bytes]:
        """A tar of what the globs find."""
        ...

    async def upload(self, asked: JobRef, path: str, mode: int, pieces: AsyncIterator[bytes]) -> int:
        """Put a file there, whole or not at all; how many bytes it has."""
        ...


class JobUsages(Protocol):
    """What callers' running jobs use."""

    async def of_caller(self, caller: Caller) -> UsageList:
        """All that were measured."""
        ...


class Exposition(RequestCounter, Protocol):
    """The metrics, as Prometheus reads them."""

    def bytes_relayed(self, count: int) -> None:
        """So many bytes of logs were sent."""
        ...

    def exposition(self) -> bytes:
        """All of them, in text."""
        ...


class Readiness(Protocol):
    """Whether work should be sent here."""

    def unready(self) -> str | None:
        """Why not, or None."""
        ...

    def worries(self) -> Sequence[str]:
        """What is not as it should be though it is ready, each in a sentence."""
        ...


@dataclass(frozen=True)
class Services:
    """All that the routes use."""

    authenticator: Door
    jobs: JobService
    logs: JobLogs
    files: JobFiles
    usage: JobUsages
    metrics: Exposition
    readiness: Readiness
    streams: StreamLimits
    renewals: Renewals
    refusals: Refusals
    bodies: BodyBudget = field(default_factory=BodyBudget)
    body_limit: int = 8 << 20
    stall_s: float = 60.0  # a reader that takes nothing for so long is cut off


# These are async although nothing here waits: FastAPI would run plain functions in threads.


async def services_of(request: Request) -> Services:
    """Where the application keeps them."""
    services: Services = request.app.state.services
    return services


async def caller_of(request: Request) -> Caller:
    """Who asks, as `CallersRoute` has found out."""
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


async def owner_named(
    caller: Annotated[Caller, Depends(caller_of)], namespace: Namespace = None, account: Account = None
) -> Owner | None:
    """Whom an operator means; everybody else means oneself, and `jobs` refuses the rest."""
    if namespace is None and account is None:
        return None
    if namespace is None or account is None:
        raise NotAccepted("namespace and account name an owner together: give both, or none")
    return Owner(caller.owner.cluster, namespace, account)


Key = Annotated[str, Path(pattern=KEY_PATTERN, description="The caller's own name for the job.")]
Attempt = Annotated[int, QueryParameter(ge=1, le=1_000_000)]


async def asked_of(caller: Annotated[Caller, Depends(caller_of)], key: Key, attempt: Attempt = 1) -> JobRef:
    """Which job the path and the query mean."""
    return JobRef(caller, key, attempt)


AskedDep = Annotated[JobRef, Depends(asked_of)]
ServicesDep = Annotated[Services, Depends(services_of)]
CallerDep = Annotated[Caller, Depends(caller_of)]
OwnerDep = Annotated[Owner | None, Depends(owner_named)]
