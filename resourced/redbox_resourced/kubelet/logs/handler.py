"""Answers GET /containerLogs: finds the pod, its job and the attempt, then streams the log."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from aiohttp import web

from redbox_api.client import RedboxClient
from redbox_api.errors import NoSuchJob, RedboxError, Refused
from redbox_api.models import Job
from redbox_kube.api.objects import ApiError
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_resourced.kubelet.logs.container_log import one_stream, requested_start
from redbox_resourced.kubelet.logs.lines import LogTimes
from redbox_resourced.kubelet.logs.pod_log import PodLog
from redbox_resourced.kubelet.logs.query import (
    LogRequest,
    ends_before,
    is_empty_since,
    read_query,
    requested_attempt,
)
from redbox_resourced.kubelet.logs.streams import JobStreams
from redbox_resourced.kubelet.logs.time_index import PodLogTimeIndexes
from redbox_resourced.kubelet.pod_finder import PodFinder
from redbox_resourced.kubelet.rejection import RequestRejected, why
from redbox_resourced.kubelet.shares import NamespaceShares, TooManyOpen
from redbox_resourced.kubelet.turns import NamespaceTurns
from redbox_resourced.pods.pod_view import BoundPod, BoundPodKind

MOST_READERS, OF_A_NAMESPACE = 500, 250  # each holds 0.3 MiB, and 1 MiB where it has stopped reading
TASKS_OF_A_READER = 160
"""Of an array, for as much memory as a reader has otherwise."""


class LogHandler:
    """Serves the logs of all pods, to a bounded number of readers, of which one namespace is never all."""

    def __init__(self, finder: PodFinder, turns: NamespaceTurns) -> None:
        self._finder = finder
        self._turns = turns
        self._warnings = GroupedWarnings("logs interrupted")
        self._time_indexes = PodLogTimeIndexes()
        self._shares = NamespaceShares("logs", MOST_READERS, OF_A_NAMESPACE)
        self._readers: defaultdict[str, set[asyncio.Task[object]]] = defaultdict(set)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            pod, redbox = self._finder.find(request)
            query = read_query(request.query, datetime.now(UTC))
            with self._shares.taken(pod.namespace):
                return await self._answer(request, pod, redbox, query)
        except RequestRejected as rejected:
            return web.Response(status=rejected.status, text=str(rejected))
        except TooManyOpen as busy:
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=str(busy))
        except Refused as refused:
            return web.Response(status=HTTPStatus.BAD_REQUEST, text=refused.detail)
        except (RedboxError, ApiError, TimeoutError) as error:
            message = f"red-box cannot be reached for this log: {why(error)}"
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE, text=message)

    def end_readers(self, pod: BoundPod) -> None:
        """The log of a deleted pod ends, as it does with containers."""
        for task in self._readers.get(pod.uid, ()):
            task.cancel()
        self._time_indexes.forget(pod.uid)

    async def _answer(
        self, request: web.Request, pod: BoundPod, redbox: RedboxClient, query: LogRequest
    ) -> web.StreamResponse:
        """All checks precede the first byte; after it, a failure can only break the connection."""
        log, query = await self.find_log(redbox, pod, request.match_info["container"], query)
        with self.share_of_tasks(pod, log):
            return await self._stream(request, pod, log, query)

    async def _stream(
        self, request: web.Request, pod: BoundPod, log: PodLog, query: LogRequest
    ) -> web.StreamResponse:
        if pod.role is BoundPodKind.POD:
            is_empty = log.times is not None and ends_before(query, log.times)
        else:
            is_empty = is_empty_since(query, LogTimes.of_job(log.job))
        answer = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        turn = self._turns.of(pod.namespace)

        async def write(data: bytes) -> None:
            await answer.write(data)
            await turn.copied(len(data))

        if not is_empty:
            await self._copy(request, pod, log.copy(query, write))
        await answer.write_eof()
        return answer

    def share_of_tasks(self, pod: BoundPod, log: PodLog) -> AbstractContextManager[None]:
        """Held while the log is read; raises TooManyOpen. One array can always be read, however large."""
        more = min(len(log.job.tasks or ()) // TASKS_OF_A_READER, OF_A_NAMESPACE - 1)
        return self._shares.taken(pod.namespace, more)

    async def find_log(
        self, redbox: RedboxClient, pod: BoundPod, container: str, query: LogRequest
    ) -> tuple[PodLog, LogRequest]:
        """Raises RequestRejected where it does not exist."""
        if pod.role is BoundPodKind.POD:
            return await self._log_of_container(redbox, pod, container, query)
        return await _log_of_attempt(redbox, pod, query), query

    async def _log_of_container(
        self, redbox: RedboxClient, pod: BoundPod, container: str, query: LogRequest
    ) -> tuple[PodLog, LogRequest]:
        """Of a pod that runs; before its job exists, its containers wait."""
        query = one_stream(query)
        try:
            job = await redbox.get_job(pod.key, attempt=pod.attempt)
        except NoSuchJob:
            if not pod.has_ended:
                requested_start(pod, container, None, query)  # says what it waits for
            raise _not_at_redbox(pod, pod.attempt) from None
        start = requested_start(pod, container, job, query)
        time_index = self._time_indexes.of(pod.uid, container, start.restart)
        streams = JobStreams(redbox, pod.key, pod.attempt, container, start.restart, query.since, time_index)
        return PodLog(streams, job, start.times), query

    async def _copy(self, request: web.Request, pod: BoundPod, copy: Coroutine[Any, Any, None]) -> None:
        """Until the end of the log, the deletion of the pod, or the reader's disconnect."""
        copying = asyncio.create_task(copy)
        self._readers[pod.uid].add(copying)
        try:
            await asyncio.wait({copying})
        finally:
            copying.cancel()
            await asyncio.wait({copying})
            self._readers[pod.uid].discard(copying)
            if not self._readers[pod.uid]:
                del self._readers[pod.uid]
        error = None if copying.cancelled() else copying.exception()
        if error is not None:
            name = f"{pod.namespace}/{pod.name}"
            self._warnings.failed(name, repr(error))
            self._warnings.recovered(name)  # a reader that goes on makes a new request
            if request.transport is not None:
                request.transport.abort()  # so that no reader takes this for the end of the log
            raise ConnectionAbortedError("the log ended early, after its first bytes were sent")


async def _log_of_attempt(redbox: RedboxClient, pod: BoundPod, query: LogRequest) -> PodLog:
    """Of a companion: a SlurmJob's attempts are its starts."""
    job = await _get_job(redbox, pod, pod.attempt)
    attempt = requested_attempt(query, pod.attempt, job.run)
    if attempt != pod.attempt:
        job = await _get_job(redbox, pod, attempt)
    return PodLog(JobStreams(redbox, pod.key, attempt), job)


async def _get_job(redbox: RedboxClient, pod: BoundPod, attempt: int) -> Job:
    try:
        return await redbox.get_job(pod.key, attempt=attempt)
    except NoSuchJob:
        raise _not_at_redbox(pod, attempt) from None


def _not_at_redbox(pod: BoundPod, attempt: int) -> RequestRejected:
    if attempt == pod.attempt and pod.not_submitted:
        why = f"the job was not submitted{'' if pod.has_ended else ' yet'}: {pod.not_submitted}"
    elif pod.has_ended or attempt != pod.attempt:
        why = "red-box no longer has this pod's job: its output is where Slurm wrote it"
    else:
        why = "the job is not submitted yet"
    return RequestRejected(why)
