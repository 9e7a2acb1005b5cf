"""Sessions of callers in their own running jobs: who may, in which job, how many, and what the audit says."""

from __future__ import annotations

import asyncio
import bisect
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from redbox.core.clock import Clock
from redbox.core.domain import JobKey, JobRef, Role, UnixUser
from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.errors import Forbidden, JobsError, NotAcceptable, RateLimited
from redbox.jobs.poll.schedule import OwnerBuckets
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.observability.job_audit import Audit, audit_entry
from redbox.sessions.errors import SessionEnded, SessionsBusy
from redbox.sessions.relay_connection import RelayStreamHandle, StreamOutput, StreamStatus
from redbox.sessions.relays import RelayKey, RelayPool
from redbox.sessions.settings import ExecSettings
from redbox.sessions.targets import SessionTarget, check_running, choose_target, still_runs
from redbox_api.sessions.parts import ExecRequest

EXEC, FORWARD = "exec", "forward"
LONGEST_COMMAND = 2000
"""Of an audit line, whose escapes of escapes may be much longer than the command."""
OFF = (
    "Sessions in running jobs are turned off at this red-box: its administrator turns them on by "
    "exec.enabled in its settings."
)


@dataclass(frozen=True, slots=True)
class PortRequest:
    """One connection to a port of a job's node."""

    port: int
    node: str | None = None
    task: int | None = None


@dataclass
class OpenSession:
    """A command, or a connection, that runs."""

    stream: RelayStreamHandle
    watch: _SessionWatch
    bytes_in: int = 0
    bytes_out: int = 0
    end: str = "the client has gone"

    async def receive(self) -> StreamOutput | StreamStatus:
        event = await self.stream.receive()
        if isinstance(event, StreamOutput):
            self.bytes_out += len(event.data)
            self.watch.touch()
        return event

    async def send(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self.watch.touch()
        await self.stream.send(data)


@dataclass
class _SessionWatch:
    """Ends a session when its job has ended, or when it has been idle."""

    jobs: JobService
    workload: WorkloadManager
    record: JobRecord
    target: SessionTarget
    task: int | None
    idle_s: float
    clock: Clock
    touched_at: float = field(init=False)
    _running: JobRecord | None = None  # as it was at the last look

    def __post_init__(self) -> None:
        self.touch()

    def touch(self) -> None:
        self.touched_at = self.clock.monotonic()

    def job_has_ended(self) -> bool:
        """Looked at after each change of any job: most are of others."""
        current = self.jobs.current(self.record.key)
        if current is not None and current is self._running:
            return False
        runs = still_runs(current, self.target, self.workload.states, self.task)
        self._running = current if runs else None
        return not runs

    async def until_job_ends(self) -> None:
        """Raise SessionEnded when the job has ended, or was requeued."""
        while not self.job_has_ended():
            await self.jobs.next_change()
        raise SessionEnded("JobEnded", "The job of this session has ended, or was requeued.")

    async def until_idle(self) -> None:
        """Raise SessionEnded when nothing has been sent or received for too long."""
        if not self.idle_s:
            await asyncio.Future()
        while (left := self.touched_at + self.idle_s - self.clock.monotonic()) > 0:  # noqa: ASYNC110 (a moment)
            await asyncio.sleep(left)
        raise SessionEnded("Idle", f"Nothing was sent or received for {self.idle_s:.0f} s (exec.idle_limit).")


class SessionService:
    """The sessions and forwarded connections of all callers."""

    def __init__(
        self,
        jobs: JobService,
        relays: RelayPool | None,
        workload: WorkloadManager,
        settings: ExecSettings,
        *,
        clock: Clock,
        audit: Audit,
    ) -> None:
        """`relays` is None where the workload manager has no steps."""
        self._jobs = jobs
        self._relays = relays
        self._workload = workload
        self._settings = settings
        self._clock = clock
        self._audit = audit
        self._open: Counter[UnixUser] = Counter()
        self._buckets = OwnerBuckets(settings.sessions_per_second, settings.session_burst)

    @property
    def count(self) -> int:
        return self._open.total()

    @property
    def relay_count(self) -> int:
        return self._relays.count if self._relays is not None else 0

    async def admit(self, ref: JobRef, port: PortRequest | None = None) -> None:
        """Refuse a session, or a connection, that cannot begin: an error of `jobs`, or SessionsBusy.

        As of submits, a refusal by the rate has no audit line: so the rate is one of audit lines, too.
        """
        caller = ref.caller
        if pause := self._buckets.wait(caller.owner, self._clock.monotonic()):
            raise RateLimited(
                f"{caller.identity} begins too many sessions: slow down (exec.sessions_per_second).",
                retry_after=max(1.0, pause),
            )
        with self._audited_refusal(ref, EXEC if port is None else FORWARD):
            record = await self._enterable(ref)
            if port is not None:
                choose_target(record, self._workload.states, port.node, port.task)

    async def _enterable(self, ref: JobRef) -> JobRecord:
        """The caller's own running job."""
        caller = ref.caller
        if not self._settings.enabled:
            raise Forbidden(OFF)
        if self._relays is None:
            raise NotAcceptable(
                f"The workload manager {self._workload.name} has no sessions in running jobs."
            )
        if caller.user is None or not any(caller.may(Role(role)) for role in self._settings.roles):
            raise Forbidden(f"{caller.identity} may not enter jobs: its mapping gives it no such role.")
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
        """Run a command in the job, as its user, as long as the block lasts."""
        size = request.size.model_dump() if request.size is not None else None
        document = {
            "kind": "command",
            "command": request.command,
            "tty": request.tty,
            "stdin": request.stdin,
            "container": request.container,
            "size": size,
            "term": request.term,
        }
        detail = {"command": self._audited(request.command), "tty": request.tty}
        if request.container is not None:
            detail["container"] = request.container
        async with self._session(ref, EXEC, document, detail, (request.node, request.task)) as session:
            yield session

    @asynccontextmanager
    async def connection(self, ref: JobRef, request: PortRequest) -> AsyncIterator[OpenSession]:
        """Connect to a port of the job's node, as its user."""
        document = {"kind": "port", "port": request.port}
        where = (request.node, request.task)
        async with self._session(ref, FORWARD, document, {"port": request.port}, where) as session:
            yield session

    def _audited(self, command: tuple[str, ...]) -> str:
        shown = list(command) if self._settings.audit_arguments else [command[0]]
        return cut_for_audit(json.dumps(shown))

    @asynccontextmanager
    async def _session(
        self,
        ref: JobRef,
        act: str,
        document: Mapping[str, Any],
        detail: Mapping[str, Any],
        where: tuple[str | None, int | None],
    ) -> AsyncIterator[OpenSession]:
        node, task = where
        with self._audited_refusal(ref, act):
            record = await self._enterable(ref)
            target = choose_target(record, self._workload.states, node, task)
        user = record.user
        key = RelayKey(user, ref.caller.identity, target.job_id, target.node, target.run)
        with self._counted(user), self._audit_of(ref, act, record, target, detail) as outcome:
            async with AsyncExitStack() as stack:
                assert self._relays is not None  # noqa: S101 # admitted
                relay = await stack.enter_async_context(self._relays.relay(key))
                stream = await stack.enter_async_context(relay.open({**document, "job": target.job_id}))
                watch = _SessionWatch(
                    self._jobs,
                    self._workload,
                    record,
                    target,
                    task,
                    float(self._settings.idle_limit),
                    self._clock,
                )
                outcome.session = session = OpenSession(stream, watch)
                yield session

    @contextmanager
    def _counted(self, user: UnixUser) -> Iterator[None]:
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]

    @contextmanager
    def _audited_refusal(self, ref: JobRef, act: str) -> Iterator[None]:
        try:
            yield
        except (JobsError, SessionsBusy) as error:
            key = JobKey(ref.caller.owner, ref.key, ref.attempt)
            self._audit(audit_entry(ref.caller, act, key, error.outcome, detail=str(error)))
            raise

    @contextmanager
    def _audit_of(
        self, ref: JobRef, act: str, record: JobRecord, target: SessionTarget, detail: Mapping[str, Any]
    ) -> Iterator[_AuditedSession]:
        """One line at the beginning, which alone has the command; and one of the same request at the end."""
        job_id = target.job_id
        text = json.dumps({**detail, "node": target.node})
        self._audit(audit_entry(ref.caller, act, record.key, "opened", job_id=job_id, detail=text))
        audited = _AuditedSession()
        try:
            yield audited
        except SessionEnded as error:
            audited.end = f"{error.reason}: {error.message}"
            raise
        except JobsError as error:
            audited.end = error.detail
            raise
        finally:
            text = json.dumps({"node": target.node, **audited.facts()})
            self._audit(audit_entry(ref.caller, act, record.key, "ended", job_id=job_id, detail=text))


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
            return {"bytesIn": 0, "bytesOut": 0, "end": self.end or "the client has gone"}
        return {"bytesIn": session.bytes_in, "bytesOut": session.bytes_out, "end": self.end or session.end}
