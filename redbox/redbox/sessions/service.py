"""Sessions of callers in their own running jobs: who may, in which job, how many, and what the audit says."""

from __future__ import annotations

import asyncio
import bisect
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from redbox.core.clock import Clock
from redbox.core.domain import Caller, JobKey, JobRef, Role, UnixUser
from redbox.core.token_buckets import Rate
from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.errors import Forbidden, JobConflict, JobsError, NotAcceptable
from redbox.jobs.owner_limit import OwnerLimit
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.observability.job_audit import Audit, audit_entry
from redbox.sessions.errors import SessionEnded, SessionsBusy
from redbox.sessions.open_session import CLIENT_GONE, OpenForward, OpenSession
from redbox.sessions.relay_connection import RELAY_LOST, RelayStreamHandle
from redbox.sessions.relays import RelayKey, RelayPool
from redbox.sessions.settings import ExecSettings
from redbox.sessions.targets import SessionTarget, check_running, choose_target, has_one_node
from redbox.sessions.watches import IdleTimer, JobWatch
from redbox_api.sessions.parts import ExecRequest

EXEC, FORWARD = "exec", "forward"
LONGEST_COMMAND = 2000
"""Of an audit line, whose escapes of escapes may be much longer than the command."""
NOT_BEGUN = "its caller was no longer authorized, or red-box stopped, before it began"
OFF = (
    "Sessions in running jobs are turned off at this red-box: its administrator turns them on by "
    "exec.enabled in its settings."
)


class SessionService:
    """The sessions and forwarded connections of all callers."""

    def __init__(
        self,
        jobs: JobService,
        relays: RelayPool,
        workload: WorkloadManager,
        settings: ExecSettings,
        *,
        clock: Clock,
        audit: Audit,
    ) -> None:
        self._jobs = jobs
        self._relays = relays
        self._workload = workload
        self._settings = settings
        self._clock = clock
        self._audit = audit
        self._open: Counter[UnixUser] = Counter()
        self._connections: Counter[UnixUser] = Counter()
        begun = Rate(settings.sessions_per_second, settings.session_burst)
        self._limit = OwnerLimit("sessions begun", begun, "exec.sessions_per_second")

    @property
    def count(self) -> int:
        return self._open.total()

    @property
    def connection_count(self) -> int:
        return self._connections.total()

    @property
    def relay_count(self) -> int:
        return self._relays.count

    async def admit(self, ref: JobRef, act: str = EXEC, task: int | None = None) -> None:
        """Refuse a session, or a forward, that cannot begin: an error of `jobs`, or SessionsBusy.

        As of submits, a refusal by the rate has no audit line: so the rate is one of audit lines, too.
        """
        self._charge(ref.caller)
        with self._audited_refusal(ref, act):
            record = await self._enterable(ref)
            if act == FORWARD:
                choose_target(record, self._workload.states, None, task)

    def _charge(self, caller: Caller) -> None:
        self._limit.charge(caller.owner, self._clock.monotonic())

    async def expect(self, ref: JobRef) -> None:
        """A command is about to be requested: its relay starts meanwhile, where only one node is possible."""
        with suppress(JobsError, SessionsBusy):  # what refuses the request itself, and is audited then
            record = await self._enterable(ref)
            if has_one_node(record):
                job = self._watch(record, None, None)
                self._relays.expect(_relay_key(ref, job, job.target), job.is_suspended)

    async def _enterable(self, ref: JobRef) -> JobRecord:
        """The caller's own running job."""
        caller = ref.caller
        if not self._settings.enabled:
            raise Forbidden(OFF)
        if caller.user is None or not any(caller.may(Role(role)) for role in self._settings.roles):
            raise Forbidden(f"{caller.identity} may not enter jobs: its mapping rule lacks the role exec.")
        record = await self._jobs.locate(caller, ref.key, ref.attempt)
        check_running(record, self._workload.states)
        if self._open[caller.user] >= self._settings.max_sessions_per_user:
            raise SessionsBusy(
                f"{caller.user.name} has {self._settings.max_sessions_per_user} sessions open: end some "
                "(exec.max_sessions_per_user)."
            )
        return record

    @asynccontextmanager
    async def command(self, ref: JobRef, request: ExecRequest) -> AsyncIterator[OpenSession]:
        """Run a command in the job, attach to a container, or add one, as long as the block lasts."""
        document, detail = _document_of(request), self._audited_detail(request)
        with self._audited_refusal(ref, EXEC):
            job = await self._entered(ref, request.node, request.task)
            if request.ephemeral is not None and not job.record.is_pod:
                raise NotAcceptable("This job is not a pod: no container can be added to it.")
        with counted(self._open, job.record.user), self._audit_of(ref, job, detail) as outcome:
            async with self._stream(ref, job, job.target, document) as stream:
                outcome.session = session = OpenSession(stream, job, self._idle_timer())
                try:
                    yield session
                except SessionEnded as error:
                    if error.reason != RELAY_LOST:
                        raise
                    raise await job.why_lost(error) from None
            if request.ephemeral is not None:
                await self._jobs.expect_report(job.record.key)

    @asynccontextmanager
    async def forward(self, ref: JobRef, task: int | None) -> AsyncIterator[OpenForward]:
        """Connect to ports of the job's nodes, as its user, as long as the block lasts."""
        with self._audited_refusal(ref, FORWARD):
            job = await self._entered(ref, None, task)
        user = job.record.user

        def audit(outcome: str, port: int, node: str, **facts: object) -> None:
            text = json.dumps({"port": port, "node": node, **facts})
            key, job_id = job.record.key, job.target.job_id
            self._audit(audit_entry(ref.caller, FORWARD, key, outcome, job_id=job_id, detail=text))

        def begin(port: int, node: str) -> None:
            self._charge(ref.caller)
            audit("opened", port, node)

        forward = OpenForward(
            job,
            partial(self._stream, ref, job),
            partial(self._counted_connection, user),
            self._idle_timer,
            begin,
        )
        with counted(self._open, user):
            try:
                yield forward
            except SessionEnded as error:
                forward.end = f"{error.reason}: {error.message}"
                raise
            finally:
                for (port, node), use in forward.uses.items():
                    facts = {"step": use.step_name, "connections": use.connections}
                    counts = {"bytesIn": use.bytes_in, "bytesOut": use.bytes_out}
                    audit("ended", port, node, **facts, **counts, end=forward.end)

    def _audited_detail(self, request: ExecRequest) -> dict[str, Any]:
        detail: dict[str, Any] = {"attach": True} if request.attach else {}
        command, container, added = request.command, request.container, request.ephemeral
        if added is not None:
            detail |= {"image": added.image, "target": added.target}
            command, container = (*added.command, *(added.args or ())), added.name
        detail |= {"command": self._audited(command)} if command else {}
        detail["tty"] = request.tty if added is None else added.tty
        return detail if container is None else {**detail, "container": container}

    def _audited(self, command: tuple[str, ...]) -> str:
        shown = list(command) if self._settings.audit_arguments else [command[0]]
        return cut_for_audit(json.dumps(shown))

    async def _entered(self, ref: JobRef, node: str | None, task: int | None) -> JobWatch:
        return self._watch(await self._enterable(ref), node, task)

    def _watch(self, record: JobRecord, node: str | None, task: int | None) -> JobWatch:
        target = choose_target(record, self._workload.states, node, task)
        return JobWatch(self._jobs, self._workload, record, target, task)

    def _idle_timer(self) -> IdleTimer:
        return IdleTimer(float(self._settings.idle_limit), self._clock)

    @asynccontextmanager
    async def _stream(
        self, ref: JobRef, job: JobWatch, target: SessionTarget, document: Mapping[str, Any]
    ) -> AsyncIterator[RelayStreamHandle]:
        whole = {**document, "job": target.job_id}
        key = _relay_key(ref, job, target)
        async with self._relays.relay(key, job.is_suspended) as relay, relay.open(whole) as stream:
            yield stream

    def _counted_connection(self, user: UnixUser) -> AbstractContextManager[None]:
        most = self._settings.max_connections_per_user
        if self._connections[user] >= most:
            raise SessionsBusy(
                f"{user.name} has {most} connections forwarded: end some (exec.max_connections_per_user)."
            )
        return counted(self._connections, user)

    @contextmanager
    def _audited_refusal(self, ref: JobRef, act: str) -> Iterator[None]:
        try:
            yield
        except JobConflict:
            raise  # it does not run: clients ask until it does
        except (JobsError, SessionsBusy) as error:
            key = JobKey(ref.caller.owner, ref.key, ref.attempt)
            self._audit(audit_entry(ref.caller, act, key, error.outcome, detail=str(error)))
            raise

    @contextmanager
    def _audit_of(self, ref: JobRef, job: JobWatch, detail: Mapping[str, Any]) -> Iterator[_AuditedSession]:
        """One line at the beginning, which alone has the command; and one of the same request at the end."""
        key, job_id, node = job.record.key, job.target.job_id, job.target.node
        text = json.dumps({**detail, "node": node})
        self._audit(audit_entry(ref.caller, EXEC, key, "opened", job_id=job_id, detail=text))
        audited = _AuditedSession()
        try:
            yield audited
        except SessionEnded as error:
            audited.end = f"{error.reason}: {error.message}"
            raise
        except JobsError as error:
            audited.end = error.detail
            raise
        except asyncio.CancelledError:
            audited.end = "" if audited.session else NOT_BEGUN
            raise
        finally:
            text = json.dumps({"node": node, **audited.facts()})
            self._audit(audit_entry(ref.caller, EXEC, key, "ended", job_id=job_id, detail=text))


def _document_of(request: ExecRequest) -> dict[str, Any]:
    """The order to the relay."""
    if request.ephemeral is not None:
        return {"kind": "order", "order": request.ephemeral.model_dump_json(by_alias=True)}
    return {
        "kind": "attach" if request.attach else "command",
        "command": request.command,
        "tty": request.tty,
        "stdin": request.stdin,
        "container": request.container,
        "size": request.size.model_dump() if request.size is not None else None,
        "term": request.term,
    }


def _relay_key(ref: JobRef, job: JobWatch, target: SessionTarget) -> RelayKey:
    record = job.record
    return RelayKey(
        record.user, ref.caller.identity, target.job_id, record.mark, node=target.node, run=target.run
    )


@contextmanager
def counted(counter: Counter[UnixUser], user: UnixUser) -> Iterator[None]:
    counter[user] += 1
    try:
        yield
    finally:
        counter[user] -= 1
        if not counter[user]:
            del counter[user]


def cut_for_audit(text: str) -> str:
    """The text, or as much of its beginning as is short where JSON has escaped it twice more."""

    def length(end: int) -> int:
        return len(json.dumps(json.dumps(text[:end])))

    possible = range(min(len(text), LONGEST_COMMAND) + 1)
    end = bisect.bisect_right(possible, LONGEST_COMMAND, key=length) - 1
    return text if end == len(text) else f"{text[:end]}... ({len(text)} characters)"


@dataclass
class _AuditedSession:
    """What the second line says."""

    session: OpenSession | None = None
    end: str = ""

    def facts(self) -> dict[str, Any]:
        session = self.session
        if session is None:
            return {"bytesIn": 0, "bytesOut": 0, "end": self.end or CLIENT_GONE}
        counts = {"bytesIn": session.bytes_in, "bytesOut": session.bytes_out}
        return {"step": session.stream.step_name, **counts, "end": self.end or session.end}
