"""Requests to the slurmrestd of one cluster, each with one deadline and bounds on what is read.

200 with `errors` is an error. A missing node, half an answer, the answer about another node, and an answer
that is older than an earlier one are unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from math import inf
from time import monotonic
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import from_json

from redbox_api.limits.answer_limits import AnswerLimits, OutOfBounds
from redbox_hosting.slurm.answers import (
    DatedAnswer,
    Done,
    LicenseList,
    NodeList,
    ReservationList,
    RestError,
    RestJob,
    RestJobList,
    RestNode,
    RestReservation,
    errors_of,
    release_in,
)
from redbox_hosting.slurm.errors import (
    BY_NUMBER,
    NO_SLURMCTLD,
    REFUSES_TOKENS,
    NoSuchNode,
    NotServed,
    SlurmRefusal,
    SlurmrestdError,
    SlurmUnknown,
    SlurmUnreachable,
    TokenRefused,
)
from redbox_hosting.slurm.http_exchange import HttpRequest, exchange

AnswerT = TypeVar("AnswerT", bound=BaseModel)
ANSWER_WITHIN_S = 5.0
NEWEST, OLDEST = 45, 40
LIMITS = AnswerLimits()
JOB_LIMITS = AnswerLimits(longest=128 << 20, values=8 << 20, containers=2 << 20)
"""Of the MaxJobCount jobs in slurm.conf: any user may have as many, and each is some 60 objects and lists."""
DECODER = ThreadPoolExecutor(1, "slurmrestd-answer")
"""Of all clusters: one answer at a time, since it may take seconds and hundreds of MiB."""
NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9])?")
OK = range(200, 300)
UNDATED = 0, inf


class SlurmrestdClient:
    """The slurmrestd of one cluster, asked as SlurmUser."""

    def __init__(
        self,
        endpoint: str,
        *,
        token: Callable[[], Awaitable[str]],
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        version: int | None = None,
        within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        """`token` is called before each request. Without `version` the newest one that is served is taken."""
        self._endpoint = endpoint
        self._token = token
        self._given_version = self._version = version
        self._within = within_s
        self._tls = tls
        self._server_name = server_name
        self._newest: dict[type[BaseModel], tuple[int, float]] = {}
        """By the kind of list: slurmctld's time in the newest answer, and when its first was asked for."""
        self.release = ""
        """Of the slurmrestd that answered last; empty until one has."""

    # ------------------------------------------------------------------------------------------------ reads
    async def nodes(self) -> tuple[RestNode, ...]:
        """All records. A node that is not among them is unknown, not drained."""
        return (await self._ask(NodeList, "GET", "nodes/")).nodes

    async def node(self, name: str) -> RestNode:
        """One record; SlurmUnknown where the answer has none or another one."""
        answer = await self._ask(NodeList, "GET", f"node/{_checked(name)}")
        for row in answer.nodes:
            if row.name == name:
                return row
        raise SlurmUnknown(f"node {name}: the answer does not have it")

    async def jobs(self) -> tuple[RestJob, ...]:
        return (await self._ask(RestJobList, "GET", "jobs/")).jobs

    async def reservations(self) -> tuple[RestReservation, ...]:
        return (await self._ask(ReservationList, "GET", "reservations/")).reservations

    async def licenses(self) -> frozenset[str]:
        answer = await self._ask(LicenseList, "GET", "licenses/")
        return frozenset(row.name for row in answer.licenses)

    @property
    def asked_at(self) -> float:
        """When the nodes and jobs of the newest answers were asked for at the latest, by the monotonic clock.

        An answer with the time of an earlier one may be that answer once more: it is as old.
        """
        return min(self._newest.get(each, UNDATED)[1] for each in (NodeList, RestJobList))

    async def ping(self) -> None:
        await self._ask(Done, "GET", "ping/")

    # ------------------------------------------------------------------------------------------------ writes
    async def drain(self, name: str, reason: str) -> None:
        await self._set_node(name, {"state": ["DRAIN"], "reason": reason})

    async def down(self, name: str, reason: str) -> None:
        """Its jobs are requeued, or end."""
        await self._set_node(name, {"state": ["DOWN"], "reason": reason})

    async def resume(self, name: str) -> None:
        """BadNodeState where there is nothing to resume."""
        await self._set_node(name, {"state": ["RESUME"]})

    async def set_address(self, name: str, address: str) -> None:
        await self._set_node(name, {"address": [address]})

    async def delete_node(self, name: str) -> None:
        """The record. NodesBusy while a job is on it; a pending job that asks for it by name is not seen.

        slurmctld removes the record of a dynamic node whose slurmd unregisters: it may be gone.
        """
        with contextlib.suppress(NoSuchNode):
            await self._ask(Done, "DELETE", f"node/{_checked(name)}")

    async def new_node(self, options: str) -> None:
        """A record from a line of options; NotServed before 25.11."""
        await self._ask(Done, "POST", "new/node/", {"node_conf": options})

    async def reconfigure(self) -> None:
        """Refused by slurmctld where its files are bad; the old configuration then stays."""
        await self._ask(Done, "GET", "reconfigure/")

    async def _set_node(self, name: str, fields: Mapping[str, Any]) -> None:
        await self._ask(Done, "POST", f"node/{_checked(name)}", fields)

    # -------------------------------------------------------------------------------------------- one request
    async def version(self) -> int:
        """The newest served version of the API that this client reads, found once and after a NotServed."""
        if self._version is None:
            for version in range(NEWEST, OLDEST - 1, -1):
                try:
                    await self._request(Done, "GET", f"/slurm/v0.0.{version}/ping/")
                except NotServed:
                    continue
                self._version = version
                break
            else:
                raise NotServed(f"slurmrestd serves none of v0.0.{OLDEST} to v0.0.{NEWEST}")
        return self._version

    async def _ask(
        self, answer: type[AnswerT], method: str, path: str, fields: Mapping[str, Any] | None = None
    ) -> AnswerT:
        return await self.ask("slurm", answer, method, path, fields)

    async def ask(
        self,
        api: str,
        answer: type[AnswerT],
        method: str,
        path: str,
        fields: Mapping[str, Any] | None = None,
    ) -> AnswerT:
        """One request to `slurm`, or to `slurmdb`, which asks slurmdbd."""
        version = await self.version()
        asked_at = monotonic()
        not_before, _ = self._newest.get(answer, UNDATED)
        try:
            read, release = await self._request(answer, method, f"/{api}/v0.0.{version}/{path}", fields)
        except NotServed:
            self._version = self._given_version  # after an upgrade slurmrestd may serve others
            raise
        self.release = release or self.release
        if isinstance(read, DatedAnswer) and read.last_update is not None:
            if read.last_update < not_before:
                late_s = not_before - read.last_update
                raise SlurmUnknown(
                    f"{method} {path}: the answer is {late_s} s older than an earlier one: a proxy repeats "
                    "it, or slurmctld's clock was set back: then restart the operator"
                )
            newest, _ = self._newest.get(answer, UNDATED)
            if read.last_update > newest:
                self._newest[answer] = read.last_update, asked_at
        return read

    async def _request(
        self, answer: type[AnswerT], method: str, path: str, fields: Mapping[str, Any] | None = None
    ) -> tuple[AnswerT, str]:
        """The whole answer, if it has no errors, and Slurm's release."""
        what = f"{method} {path}"
        limits = JOB_LIMITS if answer is RestJobList else LIMITS
        try:
            async with asyncio.timeout(self._within):
                status, body = await self._exchange(method, path, fields, limits)
        except TimeoutError as error:
            raise SlurmUnknown(f"{what}: no answer within {self._within:g} s") from error
        except (OSError, EOFError, ValueError) as error:
            raise SlurmUnknown(f"{what}: {_explained(error)}") from error
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(DECODER, _read, answer, what, status, body, limits)

    async def _exchange(
        self, method: str, path: str, fields: Mapping[str, Any] | None, limits: AnswerLimits
    ) -> tuple[int, bytes]:
        headers = {"x-slurm-user-token": await self._token(), "accept": "application/json"}
        body = b""
        if fields is not None:
            headers["content-type"] = "application/json"
            body = json.dumps(fields).encode()
        request = HttpRequest(method, path, headers, body)
        return await exchange(self._endpoint, request, self._tls, limits, self._server_name)


def _explained(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the connection was closed before the end of the answer"
    return str(error) or type(error).__name__


def _read(
    answer: type[AnswerT], what: str, status: int, body: bytes, limits: AnswerLimits
) -> tuple[AnswerT, str]:
    """The answer, and Slurm's release."""
    try:
        limits.check(body)
    except OutOfBounds as error:
        raise SlurmUnknown(f"{what}: {error}") from error
    document = _checked_answer(what, status, body)
    try:
        return answer.model_validate(document), release_in(document)
    except ValueError as error:
        raise SlurmUnknown(f"{what}: the answer is not a {answer.__name__}") from error


def _checked_answer(what: str, status: int, body: bytes) -> dict[str, Any]:
    """Raises for everything but a success without errors."""
    if status in NO_SLURMCTLD:
        raise SlurmUnreachable(f"{what}: HTTP {status}: slurmctld does not answer")
    if status in REFUSES_TOKENS:
        raise TokenRefused(f"{what}: HTTP {status}: the token is not accepted")
    if status == HTTPStatus.NOT_FOUND and not _has_errors(body):
        raise NotServed(f"{what}: HTTP 404")
    if status == HTTPStatus.NOT_MODIFIED:  # slurmdbd has it already; there is no body
        return {}
    try:
        document = from_json(body)
        if not isinstance(document, dict):
            raise SlurmUnknown(f"{what}: HTTP {status}: the answer is not an object")
        errors = errors_of(document)
    except ValueError as error:
        raise SlurmUnknown(f"{what}: HTTP {status}: the answer cannot be read") from error
    if errors:
        raise _refusal(what, errors)
    if status not in OK:
        raise SlurmUnknown(f"{what}: HTTP {status} without a reason")
    return document


def _has_errors(body: bytes) -> bool:
    """A path that is not served is answered without errors, an object that is missing with one."""
    try:
        document = from_json(body)
        return isinstance(document, dict) and bool(errors_of(document))
    except ValueError:
        return False


def _refusal(what: str, errors: list[RestError]) -> SlurmrestdError:
    """By the first number that has a class of its own; else by the first error."""
    numbers = [error.error_number or 0 for error in errors]
    number = next((number for number in numbers if number in BY_NUMBER), numbers[0])
    words = "; ".join(
        " ".join(dict.fromkeys(filter(None, (error.error, error.description)))) or "no words"
        for error in errors[:3]
    )
    return BY_NUMBER.get(number, SlurmRefusal)(f"{what}: {words} ({number})", number)


def _checked(name: str) -> str:
    """In a path, a name with / or ? would ask for another one."""
    if not NODE_NAME.fullmatch(name):
        raise SlurmUnknown(f"{name[:80]!r} is not a node's name")
    return name
