"""One request to red-box, and its answer: the token, deadlines, and bounds on what is read.

Nothing is parsed before its size is known to be bounded. A list is validated row by row and a watch event by
event, so that other tasks have their turn in between, and the first error ends both.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from aiohttp import ClientError, ClientResponse, ClientTimeout, ClientWebSocketResponse
from pydantic import ValidationError
from pydantic_core import from_json

from redbox_api.bodies import LIMITS, lines, whole
from redbox_api.connections import OF_REFUSALS, ClientConnections, explain, url_of
from redbox_api.errors import AnswerT, RedboxError, Unreachable, foreign_answer, parse, refusal
from redbox_api.limits.answer_limits import AnswerLimits, OutOfBounds
from redbox_api.limits.answer_memory import OBJECTS, AnswerMemory, HeldAnswer
from redbox_api.limits.time_share import TimeShare
from redbox_api.models import Job, JobList, Partition, PartitionEvent, PartitionList, WatchEvent

ListT = TypeVar("ListT", JobList, PartitionList)
RowT = TypeVar("RowT", Job, Partition)
EventT = TypeVar("EventT", WatchEvent, PartitionEvent)
TokenSource = Callable[[], Awaitable[str]]
OK_OR_PARTIAL = range(200, 300)


@dataclass(frozen=True)
class Deadlines:
    """In seconds; `quiet` is how long a watch may be silent (bookmarks come every 10 s), and then a log."""

    connect: float = 5.0
    answer: float = 60.0  # the whole of it
    quiet: float = 30.0
    log_quiet: float = 400.0  # red-box ends a followed answer that was silent for 300 s


class RequestSender:
    """The connections to one red-box, and the token of one caller."""

    def __init__(
        self,
        endpoint: str,
        *,
        token: TokenSource | None = None,
        ca_bundle: str | bytes | None = None,
        socket: str | None = None,
        deadlines: Deadlines | None = None,
        limits: AnswerLimits = LIMITS,
        share: TimeShare | None = None,
        memory: AnswerMemory | None = None,
        refuses: Callable[[str], str | None] | None = None,  # see `ClientConnections`
    ) -> None:
        """`token` is called before each request (tokens rotate); `ca_bundle` is PEM, `socket` a path.

        All that red-box sends is charged to `share`; without one, lists and watches are, to one of their own.
        Answers take their memory from `memory`.
        """
        self._token = token
        self.limits = limits
        self.share = share or TimeShare()
        self._memory = memory or AnswerMemory()
        self._deadlines = deadlines or Deadlines()
        self._endpoint = endpoint
        self._connections = ClientConnections(path=socket, ca_bundle=ca_bundle, refuses=refuses, share=share)

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

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, query: Mapping[str, Any], *, quiet: float | None = None
    ) -> AsyncIterator[ClientResponse]:
        """A response read piece by piece (logs, tar, watch); a refusal is raised before the first."""
        silence = self._deadlines.quiet if quiet is None else quiet
        async with self._exchange(method, path, query, await self._headers(), quiet=silence) as answer:
            yield answer

    async def token(self) -> str | None:
        """The one to send now."""
        return await self._token() if self._token else None

    async def open_websocket(
        self, path: str, query: Mapping[str, Any], protocol: str
    ) -> ClientWebSocketResponse[bool]:
        """Upgrade to a WebSocket, for `redbox_api.sessions`: the caller closes it."""
        url, within = url_of(self._endpoint, path, query), self._deadlines.answer
        return await self._connections.open_websocket(url, await self._headers(), protocol, within)

    async def _ask(
        self,
        answer: type[AnswerT],
        method: str,
        path: str,
        query: Mapping[str, Any],
        *,
        content: str | None = None,
    ) -> AnswerT:
        with self._memory.answer() as held:
            body = await self._body(method, path, query, held, content=content)
            with self.share.charged():
                return parse(answer, body, path)

    @asynccontextmanager
    async def _listed(
        self, answer: type[ListT], row: type[RowT], path: str, query: Mapping[str, Any]
    ) -> AsyncIterator[ListT]:
        """A page whose rows are validated one by one: other tasks have their turn in between.

        It has its memory until the end of the block.
        """
        with self._memory.answer() as held:
            yield await self._read_list(answer, row, path, query, held)

    async def _read_list(
        self,
        answer: type[ListT],
        row: type[RowT],
        path: str,
        query: Mapping[str, Any],
        held: HeldAnswer,
    ) -> ListT:
        body = await self._body("GET", path, query, held)
        with self.share.charged():
            document = _with_rows(body)
            if document is None:
                return parse(answer, body, path)
        rows = document["items"]
        try:
            with self.share.charged():
                page = answer.model_validate({**document, "items": []})
        except ValidationError as error:
            raise foreign_answer(answer, error, path) from error
        del body, document
        for place, given in enumerate(rows):
            try:
                with self.share.charged():
                    rows[place] = row.model_validate(given)
            except ValidationError as error:
                raise foreign_answer(answer, error, path, "items", str(place)) from error
            await self.share.rest()
        return page.model_copy(update={"items": rows})

    async def _watch(
        self, form: type[EventT], path: str, since: str | None, filters: Mapping[str, str | int]
    ) -> AsyncIterator[EventT]:
        query = {"watch": "true", **filters} | ({"since": since} if since else {})
        within = self._deadlines.quiet
        async with self.stream("GET", path, query) as answer:
            with self._memory.answer() as held:
                async for line in lines(answer.content, self.limits, self.share, held=held, within=within):
                    with self.share.charged():
                        self.limits.check(line)
                        event = parse(form, line, path)
                    yield event
                    del event  # a large one is not held until the next one comes
                    await self.share.rest()

    async def _body(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        held: HeldAnswer,
        *,
        content: str | None = None,
    ) -> bytes:
        headers = await self._headers()
        if content is not None:
            headers["content-type"] = "application/json"
        within = self._deadlines.answer
        try:
            async with (
                asyncio.timeout(within),
                self._exchange(method, path, query, headers, content=content) as response,
            ):
                body = await whole(response.content, self.limits, self.share, held)
                with self.share.charged():
                    self.limits.check(body)
                held.resize(OBJECTS * len(body))
                return body
        except TimeoutError as error:
            raise Unreachable(f"{path}: no answer within {within:g} s") from error

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
        await self.share.rest()
        within = None if quiet is None else max(quiet, self._deadlines.answer)
        begins = asyncio.timeout(within)
        try:
            async with (
                begins,
                self._connections.session().request(
                    method,
                    url_of(self._endpoint, path, query),
                    data=content,
                    headers=headers,
                    timeout=ClientTimeout(total=None, connect=self._deadlines.connect, sock_read=quiet),
                    allow_redirects=False,
                ) as answer,
            ):
                begins.reschedule(None)
                if answer.status not in OK_OR_PARTIAL:
                    raise await self._refusal(answer, path)
                yield answer
        except (ClientError, OutOfBounds) as error:
            raise Unreachable(f"{path}: {explain(error)}") from error
        except TimeoutError as error:
            if not begins.expired():
                raise
            raise Unreachable(f"{path}: no answer within {within:g} s") from error

    async def _refusal(self, answer: ClientResponse, path: str) -> RedboxError:
        """A stream has no deadline as a whole, but the body of a refusal has one."""
        within = self._deadlines.answer
        reading = asyncio.timeout(within)
        try:
            async with reading:
                body = await whole(answer.content, OF_REFUSALS, self.share)
                OF_REFUSALS.check(body)
        except TimeoutError as error:
            if not reading.expired():
                raise
            raise Unreachable(f"{path}: no answer within {within:g} s") from error
        return refusal(answer.status, body, answer.headers.get("retry-after"))

    async def _headers(self) -> dict[str, str]:
        token = await self.token()
        return {} if token is None else {"authorization": f"Bearer {token}"}


def _with_rows(body: bytes) -> dict[str, Any] | None:
    """The document, if it is an object with a list of items."""
    try:
        document = from_json(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) and isinstance(document.get("items"), list) else None
