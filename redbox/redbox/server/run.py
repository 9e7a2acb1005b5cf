"""`redbox serve`: a server's life.

`serve` is the whole of it: `start` creates every component from the settings, `Server.run` serves, signals
call `Server.stop` and `Server.reload`, and the components stop in reverse when `start` is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog
from fastapi import FastAPI

from redbox.agents.pool import AgentPool
from redbox.agents.transports.fd_limits import take_all
from redbox.callers.authenticator import Authenticator
from redbox.callers.connection_limits import ConnectionLimiter
from redbox.core.clock import SystemClock
from redbox.core.token_buckets import Rate
from redbox.files.service import JobFileService
from redbox.http.app import build_app
from redbox.http.metrics import ServerMetrics, StateCollector, TurnsCollector
from redbox.http.middleware.caller_budget import bodies_budget, streams_budget
from redbox.http.middleware.cost_budget import writes_budget
from redbox.http.middleware.rejected_callers import RejectionAudit
from redbox.http.middleware.stream_reauthorization import StreamReauthorization
from redbox.http.services import Readiness, Services
from redbox.jobs.expected_starts import ExpectedStarts
from redbox.jobs.record.marks import Marks, read_secret
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.service import JobService
from redbox.jobs.store.journal import Journal
from redbox.jobs.usage import UsageOfJobs
from redbox.logs.job_logs import JobLogReader
from redbox.logs.service import LogService
from redbox.observability.audit import AuditFile
from redbox.observability.audit_budget import AuditBudget
from redbox.observability.job_audit import AuditEntry
from redbox.server.cluster_identity import cluster_name
from redbox.server.fair_loop import FairEventLoop, report_heavy_shares
from redbox.server.listeners import (
    Listener,
    certificate_ends,
    follow_certificate,
    open_listeners,
    reload_certificate,
)
from redbox.server.login_accounts import login_node_accounts
from redbox.server.lost_journal import check_journal_not_lost
from redbox.server.observer import observer_of
from redbox.server.systemd import notify_ready
from redbox.server.transports import transport_of
from redbox.sessions.relays import RelayPool
from redbox.sessions.service import SessionService
from redbox.settings import RedboxSettings, rules_in_force
from redbox.slurm.slurm_manager import SlurmManager
from redbox.volumes.service import VolumeService
from redbox.volumes.volume_index import VolumeIndex

log = structlog.get_logger(__name__)


class BackgroundTaskFailed(Exception):
    """The task that polls Slurm and settles submits has ended: red-box must be restarted."""


async def serve(settings: RedboxSettings, path: Path) -> None:
    """Run red-box until SIGTERM or SIGINT; raises BackgroundTaskFailed when only a restart can help."""
    take_all()
    with _signal_handlers({signal.SIGHUP: _ignore_hangup}):
        connections = ConnectionLimiter()
        async with start(settings, path, connections) as application:
            listeners = open_listeners(settings.listen, settings.tls, application.app, connections)
            server = Server(application, listeners)
            stop, reload = server.stop, server.reload
            with _signal_handlers({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: reload}):
                _freeze_objects()
                notify_ready()
                await server.run()
            fault = application.jobs.fault
    if fault is not None:
        raise BackgroundTaskFailed(
            "The background task has ended; see the log. Red-box must be restarted."
        ) from fault


@dataclass(frozen=True)
class Application:
    """The started components that the server uses itself."""

    app: FastAPI
    authenticator: Authenticator
    audit_file: AuditFile
    audit: AuditBudget
    jobs: JobService
    reauthorization: StreamReauthorization


@dataclass(frozen=True)
class Server:
    """An application at its listeners."""

    application: Application
    listeners: Sequence[Listener]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(self.application.reauthorization.run()),
                group.create_task(self.application.audit.run()),
                group.create_task(self._stop_with_background_task()),
                *(group.create_task(follow_certificate(listener.config)) for listener in self.listeners),
            ]
            loop = asyncio.get_running_loop()
            if isinstance(loop, FairEventLoop):
                background.append(group.create_task(report_heavy_shares(loop.turns)))
            await asyncio.wait([group.create_task(listener.listen()) for listener in self.listeners])
            for task in background:
                task.cancel()

    def stop(self) -> None:
        """Shut down: take no more connections, and end those that are open."""
        self.application.reauthorization.end_all()
        for listener in self.listeners:
            listener.should_exit = True

    def reload(self) -> None:
        certificates = (partial(reload_certificate, listener.config) for listener in self.listeners)
        reload_all(
            self.application.authenticator.reload_rules, self.application.audit_file.reopen, *certificates
        )

    async def _stop_with_background_task(self) -> None:
        """A server that accepts submits while its states never change again is worse than none."""
        fault = await self.application.jobs.ended()
        log.critical("the background task has ended, shutting down", exc_info=fault)
        self.stop()


def _freeze_objects() -> None:
    """The application and the journal's records stay: collections, which stop the event loop, leave them out.

    Modules, which are 107,000 objects or some 50 ms a collection, were left out from the beginning.
    """
    gc.collect()
    gc.freeze()


def reload_all(*steps: Callable[[], object]) -> None:
    for step in steps:
        try:
            step()
        except Exception:
            log.exception("reload failed, the previous version stays in use")


def _ignore_hangup() -> None:
    """By default SIGHUP would end a server that still waits for Slurm."""
    log.info("SIGHUP ignored: red-box is still starting")


@contextlib.contextmanager
def _signal_handlers(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def start(
    settings: RedboxSettings, path: Path, connections: ConnectionLimiter
) -> AsyncIterator[Application]:
    """Start all components, each after those that it uses, and stop them in reverse; nothing listens yet."""
    metrics = ServerMetrics()
    audit_file = AuditFile(settings.audit.file, lambda: datetime.now(UTC), metrics.audit_line_lost)
    audit = AuditBudget(audit_file, SystemClock(), metrics.audit_line_dropped)
    loop = asyncio.get_running_loop()
    if isinstance(loop, FairEventLoop):
        metrics.collect_from(TurnsCollector(loop.turns, lambda: connections.dropped))

    def record(entry: AuditEntry) -> None:
        audit(entry)
        metrics.act_done(entry)

    async with AsyncExitStack() as stack:
        stack.callback(audit_file.close)
        stack.callback(audit.report)
        journal = Journal(settings.jobs.journal)
        stack.callback(journal.close)
        transport = transport_of(settings.agents, settings.jobs.journal)
        shares = connections.shares
        pool = await stack.enter_async_context(AgentPool(transport, settings.agents.pool, shares=shares))
        observer = await observer_of(settings, transport, journal)
        workload = SlurmManager(pool, observer, settings.slurm, on_call=metrics.slurm_called)
        secret = read_secret(settings.jobs.mark_secret)
        marks = Marks(secret, await cluster_name(settings, workload, journal))
        await check_journal_not_lost(settings, journal, workload, marks)
        jobs = await stack.enter_async_context(
            JobService(journal, workload, marks, settings=settings.jobs, audit=record)
        )
        clock = SystemClock()
        on_login_node = settings.agents.accounts_on_login_node
        job_users = _users_of(jobs)
        accounts = login_node_accounts(pool, observer, clock, job_users) if on_login_node else None
        rules = rules_in_force(settings, path)
        authenticator = await stack.enter_async_context(
            Authenticator.from_settings(settings.callers, rules, clock, accounts, job_users=job_users)
        )
        reauthorization = StreamReauthorization(authenticator, SystemClock())
        streams = streams_budget(settings.limits.streams_per_user, settings.limits.streams)
        volumes = await stack.enter_async_context(
            VolumeService(VolumeIndex(journal), pool, settings.volumes, clock=SystemClock(), audit=record)
        )
        steps = (workload.session_argv, workload.check_session_job)
        relays = await stack.enter_async_context(
            RelayPool(pool, *steps, environment=settings.slurm.environment)
        )
        sessions = SessionService(jobs, relays, workload, settings.exec, clock=SystemClock(), audit=record)
        metrics.collect_from(
            StateCollector(
                jobs=jobs,
                stale_s=lambda: _age(jobs),
                certificate_ends=partial(certificate_ends, settings.listen, settings.tls),
                agents=pool.state,
                streams=lambda: streams.held,
                sessions=lambda: sessions.count,
                forwarded=lambda: sessions.connection_count,
                relays=lambda: sessions.relay_count,
                volumes=lambda: volumes.count,
            )
        )
        services = Services(
            authenticator=authenticator,
            jobs=jobs,
            logs=JobLogReader(jobs, pool, LogService(settings.logs, time.monotonic), workload),
            files=JobFileService(jobs, pool),
            sessions=sessions,
            volumes=volumes,
            usage=await stack.enter_async_context(UsageOfJobs(jobs, workload)),
            expected_starts=ExpectedStarts(jobs, workload),
            metrics=metrics,
            readiness=Readiness(jobs, authenticator),
            credentials_expire_at=transport.credentials_expire_at,
            streams=streams,
            reauthorization=reauthorization,
            rejections=RejectionAudit(audit, SystemClock()),
            slurm_metrics=workload.metrics,
            bodies=bodies_budget(settings.limits.body_bytes),
            body_limit=settings.limits.body_bytes,
            writes=writes_budget(_writes_rate(settings)),
        )
        yield Application(build_app(services), authenticator, audit_file, audit, jobs, reauthorization)


def _users_of(records: Iterable[RecordSummary]) -> tuple[str, ...]:
    """The names of the users of all jobs, of the one that changed last at the end."""
    names: dict[str, None] = {}
    for record in records:
        names.pop(record.user.name, None)
        names[record.user.name] = None
    return tuple(names)


def _writes_rate(settings: RedboxSettings) -> Rate:
    """No less than the administrator allows of submits alone."""
    limits, jobs = settings.limits, settings.jobs
    return Rate(
        max(limits.writes_per_second, jobs.submits_per_second), max(limits.write_burst, jobs.submit_burst)
    )


def _age(jobs: JobService) -> float:
    since = jobs.stale_since
    return (datetime.now(UTC) - since).total_seconds() if since else 0.0
