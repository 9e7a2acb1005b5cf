"""Requests to red-box as a job's own identity: a token of the job's service account, for that red-box alone.

The token is issued by Kubernetes to users who may create tokens of the account, lives for ten minutes, and
stays in memory. The address and the authority are the SlurmCluster's.
"""

from __future__ import annotations

import base64
import http.client
import json
import queue
import re
import ssl
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast
from urllib.parse import urlsplit

from kubectl_slurm.errors import BadUsage, PluginError, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.clusters import ClusterView, cluster_of
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.redbox.answers import MOST, Answer, AnswerInvalid, read_answer
from kubectl_slurm.terminal.screen import one_line
from redbox_shared.wire import GENERATION_HEADER, OFFSET_HEADER

LIFETIME = "10m"
DEADLINE_S = 5.0
"""For one step: a connection, or the next bytes."""
WHOLE_ANSWER_S = 20.0
LOG_DEADLINE_S = 330.0
"""For the next piece of a log, which has no deadline as a whole: red-box ends a silent one after 300 s."""
LARGEST = 16 * 1024 * 1024
MOST_CONTAINERS, MOST_VALUES = 200_000, 2_000_000
"""Objects and lists of an answer, and all its values, as counted before it is parsed: `[]` is two bytes on
the line and 56 as a list. The usage of a job is one object with five values."""
CHUNK = 65536
OK, NO_CONTENT = 200, 204
ACCOUNT = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
BREAKS = (OSError, http.client.HTTPException, ValueError)
"""ValueError: a port, a name, or the size of a chunk that is not one."""
PORT = 443
"""Of an address without one, as for the operator and the companions."""
T = TypeVar("T")


class RedboxNotReached(PluginError):
    """red-box does not answer at this address, from this machine."""


class RedboxRefused(PluginError):
    """red-box answered with a problem."""

    def __init__(self, message: str, status: int = OK, title: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.title = title


@dataclass(frozen=True)
class _Answered:
    """An answer and, where it was read, what it is."""

    connection: http.client.HTTPConnection
    answer: http.client.HTTPResponse
    document: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class RedboxAccess:
    """A red-box, and a token of one service account for it."""

    endpoint: str
    authority: str
    token: str

    def get(self, wanted: type[Answer], path: str) -> Answer:
        """The answer to a GET."""
        return read_answer(wanted, self._document("GET", path, None))

    def output(self, path: str) -> Iterator[tuple[str, int, bytes]]:
        """Pieces of a log, with the file's generation and the offset behind each; none at its end."""
        unread = {OK, NO_CONTENT}
        begun = self._request("GET", path, None, step_s=LOG_DEADLINE_S, whole_s=LOG_DEADLINE_S, unread=unread)
        answer = begun.answer
        try:
            if answer.status == NO_CONTENT:
                return
            generation, offset = answer.headers.get(GENERATION_HEADER, ""), _offset_of(answer)
            while piece := answer.read1(CHUNK):
                offset += len(piece)
                yield generation, offset, piece
            yield generation, offset, b""
        except BREAKS as error:
            raise self._broken(error) from error
        finally:
            begun.connection.close()

    def _document(self, method: str, path: str, body: bytes | None) -> dict[str, object]:
        return self._request(method, path, body, step_s=DEADLINE_S, whole_s=WHOLE_ANSWER_S).document

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        step_s: float,
        whole_s: float,
        unread: Collection[int] = (),
    ) -> _Answered:
        """The answer, whole; of a status that is `unread` its head, whose reader closes the connection.

        RedboxRefused for a problem.
        """

        def ask() -> _Answered:
            connection, answer = self._ask(method, path, step_s, body)
            if answer.status in unread:
                return _Answered(connection, answer)
            try:
                content = answer.read(LARGEST + 1)
            except BREAKS as error:
                raise self._broken(error) from error
            finally:
                connection.close()
            return _Answered(connection, answer, _read(answer.status, content))

        return self._within(whole_s, ask)

    def _within(self, deadline_s: float, act: Callable[[], T]) -> T:
        """What `act` returns or raises; RedboxNotReached where it takes longer.

        A socket's timeout starts again with each byte, so a server that sends one now and then would never
        meet it. The thread that is left behind ends with the process.
        """
        ended: queue.SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = queue.SimpleQueue()

        def run() -> None:
            try:
                ended.put((act(), None))
            except BaseException as error:  # noqa: BLE001 (raised by the thread that waits)
                ended.put((None, error))

        threading.Thread(target=run, daemon=True).start()
        try:
            result, error = ended.get(timeout=deadline_s)
        except queue.Empty:
            raise RedboxNotReached(
                f"{self.endpoint} did not send its whole answer in {deadline_s:g} s"
            ) from None
        if error is not None:
            raise error
        return cast("T", result)

    def _broken(self, error: Exception) -> RedboxNotReached:
        return RedboxNotReached(f"{self.endpoint} broke the connection: {error}")

    def _ask(
        self, method: str, path: str, deadline_s: float, body: bytes | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection: http.client.HTTPConnection | None = None
        try:
            address = urlsplit(self.endpoint)
            context = ssl.create_default_context(cadata=self.authority)
            connection = http.client.HTTPSConnection(
                address.hostname or "", address.port or PORT, timeout=DEADLINE_S, context=context
            )
            connection.connect()
            connection.sock.settimeout(deadline_s)
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            return connection, connection.getresponse()
        except BREAKS as error:
            if connection is not None:
                connection.close()
            raise RedboxNotReached(f"{self.endpoint} is not reached from this machine: {error}") from error


def _offset_of(answer: http.client.HTTPResponse) -> int:
    given = answer.headers.get(OFFSET_HEADER, "0")
    if not given.isdecimal() or len(given) > len(str(MOST)):
        raise AnswerInvalid(f"red-box answered with the offset {one_line(given)[:40]}")
    return int(given)


def _read(status: int, body: bytes) -> dict[str, object]:
    _check_size(body)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise AnswerInvalid(f"red-box answered {status}, and no JSON object")
    if status != OK:
        title = one_line(document.get("title") or "")
        raise RedboxRefused(
            one_line(document.get("detail") or title or f"red-box answered {status}"), status, title
        )
    return document


def _check_size(body: bytes) -> None:
    if len(body) > LARGEST:
        raise AnswerInvalid(f"red-box's answer has more than {LARGEST >> 20} MiB")
    containers = body.count(b"{") + body.count(b"[")
    if containers > MOST_CONTAINERS:
        raise AnswerInvalid(f"red-box's answer has more than {MOST_CONTAINERS:,} objects and lists")
    if containers + body.count(b",") > MOST_VALUES:
        raise AnswerInvalid(f"red-box's answer has more than {MOST_VALUES:,} values")


def access_of(kubectl: Kubectl, cluster: ClusterView, service_account: str) -> RedboxAccess:
    """A token of this account; NotPermitted where the user may not create one."""
    audience, endpoint = cluster.audience, str(cluster.spec.get("endpoint", ""))
    if not audience or not endpoint:
        raise Refusal(f"{cluster.title} has no endpoint and audience")
    if not ACCOUNT.fullmatch(service_account):
        raise BadUsage(f"{one_line(service_account)!r} is not a name of a service account")
    try:
        authority = base64.b64decode(cluster.spec.get("caBundle", "")).decode("ascii")
    except ValueError:
        raise Refusal(f"the caBundle of {cluster.title} is not a certificate as PEM, in base64") from None
    words = ["create", "token", service_account, f"--audience={audience}", f"--duration={LIFETIME}"]
    token = kubectl.text(*words).strip()
    return RedboxAccess(endpoint, authority, token)


def access_of_job(kubectl: Kubectl, job: SlurmJobView) -> RedboxAccess:
    """As the identity of this job, at its red-box."""
    return access_of(kubectl, cluster_of(kubectl, job), job.service_account)


def by_account(jobs: Iterable[SlurmJobView]) -> Iterator[list[SlurmJobView]]:
    """Those that one access serves."""
    groups: dict[tuple[str, str], list[SlurmJobView]] = {}
    for job in jobs:
        groups.setdefault((job.cluster_key, job.service_account), []).append(job)
    yield from groups.values()


def names_of(jobs: Iterable[SlurmJobView]) -> str:
    return ", ".join(job.name for job in jobs)
