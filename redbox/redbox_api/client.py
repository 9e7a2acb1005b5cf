"""A client for red-box, as the operator, resourced and other Python programs use it.

One `RedboxClient` is one red-box and one caller. It opens connections on demand, gives every
request a deadline, and raises the exceptions of `redbox_api.errors`. It does not retry: callers do. Only if a
connection is dropped before a response begins does aiohttp repeat GET, PUT and DELETE, which in red-box's
contract has the same effect as one request. Redirects are not followed: a token goes only to its red-box.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote

from aiohttp import ClientResponse

from redbox_api.errors import (
    FOREIGN,
    Unreachable,
)
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
    Partition,
    PartitionEvent,
    PartitionList,
    UsageList,
    VolumeFolder,
    VolumeRequest,
    WatchEvent,
    WhoAmI,
)
from redbox_api.pod_parts import PodUpdate
from redbox_api.requests.sender import RequestSender
from redbox_shared.wire import GENERATION_HEADER, OFFSET_HEADER, RESTART_HEADER

OFFSET = re.compile(r"[0-9]{1,18}")


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


class RedboxClient(RequestSender):
    """Sends requests to one red-box as one caller."""

    # -- jobs

    async def put_job(self, key: str, request: JobRequest, *, attempt: int = 1) -> Job:
        """Submit, or attach to the job that has this key."""
        body = request.model_dump_json(by_alias=True, exclude_defaults=True, context=REVEAL_SECRETS)
        job = await self._ask(Job, "PUT", _job(key), {"attempt": attempt}, content=body)
        return answer_about(job, key, attempt)

    async def get_job(
        self, key: str, *, attempt: int = 1, owner: OwnerRef | None = None, tasks: bool = True
    ) -> Job:
        """Without `tasks` an array has only their counts: 40,000 are 4 MiB."""
        query: dict[str, Any] = {"attempt": attempt, **_owner(owner)}
        if not tasks:
            query["tasks"] = "false"
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
        task: int | None = None,
        owner: OwnerRef | None = None,
    ) -> Job:
        """Hold, release, requeue, signal or cancel-task; an operator may do all but signal to jobs of others.

        To requeue them it needs the role requeue. `run` limits a requeue to that run.
        """
        query: dict[str, Any] = {"attempt": attempt, **_owner(owner)} | ({"signal": signal} if signal else {})
        query |= {name: value for name, value in (("run", run), ("task", task)) if value is not None}
        return answer_about(await self._ask(Job, "POST", f"{_job(key)}/{act}", query), key, attempt)

    async def update_pod(self, key: str, update: PodUpdate, *, attempt: int = 1) -> Job:
        """Replace files of a pod's volumes, or bring its deadline forward."""
        body = update.model_dump_json(by_alias=True, exclude_defaults=True)
        job = await self._ask(Job, "PUT", f"{_job(key)}/pod", {"attempt": attempt}, content=body)
        return answer_about(job, key, attempt)

    async def list_jobs(self, **filters: str | int | Sequence[str]) -> AsyncIterator[JobList]:
        """All pages of a list; each carries the revision at which a watch may begin."""
        query: dict[str, Any] = dict(filters)
        while True:
            async with self._listed(JobList, Job, "/v1/jobs", query) as page:
                following = page.next
                yield page.model_copy(update={"items": [checked(job) for job in page.items]})
                del page
            if following is None:
                return
            query["continue"] = following

    async def watch_jobs(self, since: str | None = None, **filters: str | int) -> AsyncIterator[WatchEvent]:
        """Changes from a revision on; ends when the server says so, raises TooOld or Unreachable."""
        async for event in self._watch(WatchEvent, "/v1/jobs", since, filters):
            yield event if event.job is None else event.model_copy(update={"job": checked(event.job)})
            del event

    async def check(self, request: JobRequest) -> Check:
        """Whether Slurm would accept it, and when it would start."""
        body = request.model_dump_json(by_alias=True, exclude_defaults=True, context=REVEAL_SECRETS)
        return await self._ask(Check, "POST", "/v1/check", {}, content=body)

    async def expected_start(self, key: str, *, attempt: int = 1) -> ExpectedStart:
        return await self._ask(ExpectedStart, "GET", f"{_job(key)}/expected-start", {"attempt": attempt})

    # -- logs and files

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
        async with self._listed(PartitionList, Partition, "/v1/partitions", {}) as partitions:
            return partitions

    async def watch_partitions(self, since: str | None = None) -> AsyncIterator[PartitionEvent]:
        """Changes from a list's revision on; ends and raises as `watch_jobs` does."""
        async for event in self._watch(PartitionEvent, "/v1/partitions", since, {}):
            yield event
            del event

    async def whoami(self) -> WhoAmI:
        return await self._ask(WhoAmI, "GET", "/v1/whoami", {})


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
