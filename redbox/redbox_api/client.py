"""A client for red-box, as the operator, resourced and other Python programs use it.

One `RedboxClient` is one red-box and one caller. It opens connections on demand, gives every
request a deadline, and raises the exceptions of `redbox_api.errors`. It does not retry: callers do. Only if a
connection is dropped before a response begins does aiohttp repeat GET, PUT and DELETE, which in red-box's
contract has the same effect as one request. Redirects are not followed: a token goes only to its red-box.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from aiohttp import ClientError, ClientResponse, ClientTimeout, ClientWebSocketResponse

from redbox_api.bodies import TooLong, lines, whole
from redbox_api.connections import ClientConnections, explain, url_of
from redbox_api.errors import FOREIGN, AnswerT, NotAccepted, RedboxError, Unreachable, parse, refusal
from redbox_api.job_parts import REVEAL_SECRETS
from redbox_api.job_rows import answer_about, cancelled_attempts, checked
from redbox_api.models import (
    Cancelled,
    Check,
    Cluster,
    ExpectedStart,
    FileList,
    Job,
    JobList,
    JobRequest,
    OwnerRef,
    PartitionEvent,
    PartitionList,
    UsageList,
    VolumeFolder,
    VolumeRequest,
    WatchEvent,
    WhoAmI,
)
from redbox_shared.wire import GENERATION_HEADER, OFFSET_HEADER, RESTART_HEADER

TokenSource = Callable[[], Awaitable[str]]
OK_OR_PARTIAL = range(200, 300)
OFFSET = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class Deadlines:
    """In seconds; `quiet` is how long a watch may be silent (bookmarks come every 10 s), and then a log."""

    connect: float = 5.0
    answer: float = 60.0  # the whole of it
    quiet: float = 30.0
    log_quiet: float = 400.0  # red-box ends a followed answer that was silent for 300 s


@dataclass(frozen=True)
class LogQuery:
    """Which log, the reader's position, and how much to read."""

    stream: Literal["stdout", "stderr"] = "stdout"
    attempt: int = 1
    task: int | None = None
    container: str | None = None
    """Of a pod: which container's file; both streams are in it."""
    restart: int | None = None
    """Of a container: which of its starts, from 0."""
    generation: str = ""
    offset: int = 0
    tail: int | None = None
    tail_lines: int | None = None
    follow: bool = False

    def at(self, generation: str, offset: int) -> LogQuery:
        """The same log, from this byte on."""
        return replace(self, generation=generation, offset=offset, tail=None, tail_lines=None)

    def parameters(self) -> dict[str, Any]:
        given = {
            "attempt": self.attempt,
            "task": self.task,
            "container": self.container,
            "restart": self.restart,
            "generation": self.generation or None,
            "offset": self.offset,
            "tail": self.tail,
            "tailLines": self.tail_lines,
            "follow": str(self.follow).lower(),
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class LogAnswer:
    """Bytes from `offset` of `generation`; `nothing_more`: there are none and will be none."""

    generation: str
    offset: int
    pieces: AsyncIterator[bytes]
    nothing_more: bool
    restart: int | None = None
    """Of a container: which of its starts."""


class RedboxClient:
    """Sends requests to one red-box as one caller."""

    def __init__(
        self,
        endpoint: str,
        *,
        token: TokenSource | None = None,
        ca_bundle: str | bytes | None = None,
        socket: str | None = None,
        deadlines: Deadlines | None = None,
        longest: int | None = None,  # bytes of an answer, or of an event of a watch, that are held in memory
        refuses: Callable[[str], str | None] | None = None,  # see `ClientConnections`
    ) -> None:
        """`token` is called before each request (tokens rotate); `ca_bundle` is PEM, `socket` a path."""
        self._token = token
        self.longest = longest
        self._deadlines = deadlines or Deadlines()
        self._endpoint = endpoint
        self._connections = ClientConnections(path=socket, ca_bundle=ca_bundle, refuses=refuses)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connections.close()

    def speaking_for(self, token: TokenSource) -> Self:
        """The same red-box over the same connections, as another caller: it lives as long as this one."""
        other = copy.copy(self)
        other._token = token  # noqa: SLF001 (one of ours)
        return other

    # -- jobs

    async def put_job(self, key: str, request: JobRequest, *, attempt: int = 1) -> Job:
        """Submit, or attach to the job that has this key."""
        body = request.model_dump_json(by_alias=True, exclude_defaults=True, context=REVEAL_SECRETS)
        job = await self._ask(Job, "PUT", _job(key), {"attempt": attempt}, content=body)
        return answer_about(job, key, attempt)

    async def get_job(
        self, key: str, *, attempt: int = 1, owner: OwnerRef | None = None, tasks: bool = True
    ) -> Job:
        """Without `tasks` an array has only their counts, if red-box is new enough: 40,000 are 4 MiB."""
        query: dict[str, Any] = {"attempt": attempt, **_owner(owner)}
        if not tasks:
            with suppress(NotAccepted):  # an older red-box has no such parameter
                job = await self._ask(Job, "GET", _job(key), {**query, "tasks": "false"})
                return answer_about(job, key, attempt)
        return answer_about(await self._ask(Job, "GET", _job(key), query), key, attempt)

    async def cancel_job(
        self,
        key: str,
        *,
        attempt: int = 1,
        all_attempts: bool = False,
        force: bool = False,
        owner: OwnerRef | None = None,
    ) -> list[Job]:
        """Cancel. Raises NoSuchJob where there was none; a submit that comes later is refused then.

        A pod that runs has its grace period first, unless `force` says that it has none.
        """
        query: dict[str, Any] = {"attempt": attempt, **_owner(owner)}
        query["allAttempts"] = str(all_attempts).lower()
        if force:
            query["force"] = "true"
        answer = await self._ask(Cancelled, "DELETE", _job(key), query)
        return cancelled_attempts(answer.items, key, None if all_attempts else attempt)

    async def act_on_job(
        self,
        key: str,
        act: str,
        *,
        attempt: int = 1,
        signal: str | None = None,
        run: int | None = None,
        owner: OwnerRef | None = None,
    ) -> Job:
        """Hold, release, requeue or signal; an operator may hold and release the jobs of others.

        With the role requeue it may requeue them, too. `run` limits a requeue to that run.
        """
        query: dict[str, Any] = {"attempt": attempt, **_owner(owner)} | ({"signal": signal} if signal else {})
        if run is not None:
            query["run"] = run
        return answer_about(await self._ask(Job, "POST", f"{_job(key)}/{act}", query), key, attempt)

    async def list_jobs(self, **filters: str | int | Sequence[str]) -> AsyncIterator[JobList]:
        """All pages of a list; each carries the revision at which a watch may begin."""
        query: dict[str, Any] = dict(filters)
        while True:
            page = await self._ask(JobList, "GET", "/v1/jobs", query)
            following = page.next
            yield page.model_copy(update={"items": [checked(job) for job in page.items]})
            del page
            if following is None:
                return
            query["continue"] = following

    async def watch_jobs(self, since: str | None = None, **filters: str | int) -> AsyncIterator[WatchEvent]:
        """Changes from a revision on; ends when the server says so, raises TooOld or Unreachable."""
        query = {"watch": "true", **filters} | ({"since": since} if since else {})
        async with self.stream("GET", "/v1/jobs", query) as answer:
            async for line in lines(answer.content, self.longest):
                event = parse(WatchEvent, line, "/v1/jobs")
                yield event if event.job is None else event.model_copy(update={"job": checked(event.job)})

    async def check(self, request: JobRequest) -> Check:
        """Whether Slurm would accept it, and when it would start."""
        body = request.model_dump_json(by_alias=True, exclude_defaults=True, context=REVEAL_SECRETS)
        return await self._ask(Check, "POST", "/v1/check", {}, content=body)

    async def expected_start(self, key: str, *, attempt: int = 1) -> ExpectedStart:
        return await self._ask(ExpectedStart, "GET", f"{_job(key)}/expected-start", {"attempt": attempt})

    # -- logs and files

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, query: Mapping[str, Any], *, quiet: float | None = None
    ) -> AsyncIterator[ClientResponse]:
        """A response read piece by piece (logs, tar, watch); a refusal is raised before the first."""
        silence = self._deadlines.quiet if quiet is None else quiet
        async with self._exchange(method, path, query, await self._headers(), quiet=silence) as answer:
            yield answer

    @asynccontextmanager
    async def read_log(self, key: str, query: LogQuery) -> AsyncIterator[LogAnswer]:
        """One response with part of a log; `redbox_api.log_reader` repeats this to the end."""
        path = f"{_job(key)}/logs/{query.stream}"
        async with self.stream("GET", path, query.parameters(), quiet=self._deadlines.log_quiet) as answer:
            generation, offset = _begins_at(answer, path)
            yield LogAnswer(
                generation=generation,
                offset=offset,
                pieces=answer.content.iter_any(),
                nothing_more=answer.status == HTTPStatus.NO_CONTENT,
                restart=_restart(answer),
            )

    async def token(self) -> str | None:
        """The one to send now."""
        return await self._token() if self._token else None

    async def open_websocket(
        self, path: str, query: Mapping[str, Any], protocol: str
    ) -> ClientWebSocketResponse[bool]:
        """Upgrade to a WebSocket, for `redbox_api.sessions`: the caller closes it."""
        url, within = url_of(self._endpoint, path, query), self._deadlines.answer
        return await self._connections.open_websocket(url, await self._headers(), protocol, within)

    async def list_files(self, key: str, pattern: str = "*", *, attempt: int = 1) -> FileList:
        return await self._ask(FileList, "GET", f"{_job(key)}/files", {"attempt": attempt, "glob": pattern})

    async def usage(self) -> UsageList:
        return await self._ask(UsageList, "GET", "/v1/usage", {})

    # -- volumes

    async def put_volume(self, handle: str, request: VolumeRequest) -> VolumeFolder:
        """Make the folder, or return the existing one."""
        body = request.model_dump_json(by_alias=True, exclude_defaults=True)
        return await self._ask(VolumeFolder, "PUT", _volume(handle), {}, content=body)

    async def get_volume(self, handle: str) -> VolumeFolder:
        return await self._ask(VolumeFolder, "GET", _volume(handle), {})

    async def delete_volume(self, handle: str) -> VolumeFolder:
        """Delete the folder with its files; Busy while that takes long. Raises NoSuchJob without one."""
        return await self._ask(VolumeFolder, "DELETE", _volume(handle), {})

    # -- the cluster

    async def cluster(self) -> Cluster:
        return await self._ask(Cluster, "GET", "/v1/cluster", {})

    async def partitions(self) -> PartitionList:
        return await self._ask(PartitionList, "GET", "/v1/partitions", {})

    async def watch_partitions(self, since: str | None = None) -> AsyncIterator[PartitionEvent]:
        """Changes from a list's revision on; ends and raises as `watch_jobs` does."""
        query = {"watch": "true"} | ({"since": since} if since else {})
        async with self.stream("GET", "/v1/partitions", query) as answer:
            async for line in lines(answer.content, self.longest):
                yield parse(PartitionEvent, line, "/v1/partitions")

    async def whoami(self) -> WhoAmI:
        return await self._ask(WhoAmI, "GET", "/v1/whoami", {})

    # -- requests

    async def _ask(
        self,
        answer: type[AnswerT],
        method: str,
        path: str,
        query: Mapping[str, Any],
        *,
        content: str | None = None,
    ) -> AnswerT:
        headers = await self._headers()
        if content is not None:
            headers["content-type"] = "application/json"
        within = self._deadlines.answer
        try:
            async with (
                asyncio.timeout(within),
                self._exchange(method, path, query, headers, content=content) as response,
            ):
                body = await whole(response.content, self.longest)
        except TimeoutError as error:
            raise Unreachable(f"{path}: no answer within {within:g} s") from error
        return parse(answer, body, path)

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        *,
        content: str | None = None,
        quiet: float | None = None,
    ) -> AsyncIterator[ClientResponse]:
        try:
            async with self._connections.session().request(
                method,
                url_of(self._endpoint, path, query),
                data=content,
                headers=headers,
                timeout=ClientTimeout(total=None, connect=self._deadlines.connect, sock_read=quiet),
                allow_redirects=False,
            ) as answer:
                if answer.status not in OK_OR_PARTIAL:
                    raise await self._refusal(answer, path)
                yield answer
        except (ClientError, TooLong) as error:
            raise Unreachable(f"{path}: {explain(error)}") from error

    async def _refusal(self, answer: ClientResponse, path: str) -> RedboxError:
        """A stream has no deadline as a whole, but the body of a refusal has one."""
        within = self._deadlines.answer
        reading = asyncio.timeout(within)
        try:
            async with reading:
                body = await whole(answer.content, self.longest)
        except TimeoutError as error:
            if not reading.expired():
                raise
            raise Unreachable(f"{path}: no answer within {within:g} s") from error
        return refusal(answer.status, body, answer.headers.get("retry-after"))

    async def _headers(self) -> dict[str, str]:
        token = await self.token()
        return {} if token is None else {"authorization": f"Bearer {token}"}


def _job(key: str) -> str:
    """A job's path, whatever characters its key has."""
    return f"/v1/jobs/{quote(key, safe='')}"


def _volume(handle: str) -> str:
    return f"/v1/volumes/{quote(handle, safe='')}"


def _owner(owner: OwnerRef | None) -> dict[str, str]:
    return {"namespace": owner.namespace, "account": owner.account} if owner else {}


def _restart(answer: ClientResponse) -> int | None:
    restart = answer.headers.get(RESTART_HEADER, "")
    return int(restart) if OFFSET.fullmatch(restart) else None


def _begins_at(answer: ClientResponse, path: str) -> tuple[str, int]:
    """The generation of a log (empty: there is no file) and the offset; only red-box sends both."""
    generation, offset = answer.headers.get(GENERATION_HEADER), answer.headers.get(OFFSET_HEADER, "")
    if generation is None or not OFFSET.fullmatch(offset):
        raise Unreachable(f"{path}: {FOREIGN}: it lacks its position in the log")
    return generation, int(offset)
