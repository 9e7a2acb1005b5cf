"""`redbox serve`: every part made from the settings, joined, started in order and ended in reverse.

What each part does is its own affair; here it is only said who stands on whom.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog
from fastapi import FastAPI

from redbox.agents.pool import AgentPool
from redbox.callers.authenticator import Authenticator
from redbox.callers.connection_limits import Connections
from redbox.core.clock import SystemClock
from redbox.core.fd_limits import take_all
from redbox.core.workload_manager import WorkloadManager
from redbox.files.service import FilesOfJobs
from redbox.http.app import build_app
from redbox.http.middleware.body_budget import BodyBudget
from redbox.http.middleware.rejected_callers import Refusals
from redbox.http.middleware.stream_limits import StreamLimits
from redbox.http.middleware.stream_reauthorization import Renewals
from redbox.http.services import Services
from redbox.jobs.record.marks import Marks, read_secret
from redbox.jobs.service import JobService
from redbox.jobs.store.journal import Journal
from redbox.jobs.usage import UsageOfJobs
from redbox.local.workload import LocalManager
from redbox.logs.job_logs import JobLogReader
from redbox.logs.service import Logs
from redbox.observability.audit import AuditFile
from redbox.observability.job_audit import Deed
from redbox.server.cluster_identity import cluster_name
from redbox.server.listeners import Listener, open_listeners, reload_certificate
from redbox.server.lost_journal import refuse_if_lost
from redbox.server.metrics import LiveState, Metrics
from redbox.server.systemd import tell_ready
from redbox.server.transports import observer_of, transport_of
from redbox.settings import Settings, rules_in_force
from redbox.slurm.slurm_manager import SlurmManager

log = structlog.get_logger(__name__)


@dataclass
class Parts:
    """What signals and listeners need of a server that runs."""

    app: FastAPI
    authenticator: Authenticator
    audit: AuditFile
    jobs: JobService


class BackgroundEnded(Exception):
    """What looks at Slurm, and settles submits, is no more: a restart mends it."""


class Readiness:
    """Ready is: the background work goes on."""

    def __init__(self, jobs: JobService, authenticator: Authenticator) -> None:
        self._jobs = jobs
        self._authenticator = authenticator

    def unready(self) -> str | None:
        """Stale states do not make it unready: it still submits, and says what is stale."""
        return None if self._jobs.alive else "the background work has ended: see the log"

    def worries(self) -> list[str]:
        """What those who watch over it should know."""
        health, since = self._authenticator.health(), self._jobs.stale_since
        return [
            *([f"Slurm does not answer: states are those of {since:%H:%M:%S} UTC"] if since else ()),
            *(f"keys of cluster {keys.cluster}: {keys.problem}" for keys in health.key_sets if keys.problem),
            *(f"the mapping rules have a flaw, the old ones stay: {flaw}" for flaw in health.rule_flaws),
        ]


async def serve(settings: Settings, path: Path) -> None:
    """Serve until told to end; raises BackgroundEnded where it could only limp on."""
    take_all()
    with _hangup_ignored():
        async with running(settings, path) as parts:
            listeners = open_listeners(settings.listen, settings.tls, parts.app, Connections())
            with _signals(listeners, parts):
                tell_ready()
                async with asyncio.TaskGroup() as group:
                    watch = group.create_task(_end_with_background(parts.jobs, listeners))
                    await asyncio.wait([group.create_task(listener.listen()) for listener in listeners])
                    watch.cancel()
            fault = parts.jobs.fault
    if fault is not None:
        raise BackgroundEnded(
            "The background work has ended: see the log. It must be started anew."
        ) from fault


async def _end_with_background(jobs: JobService, listeners: Sequence[Listener]) -> None:
    """A server whose states never change again, and that takes submits, is worse than none."""
    fault = await jobs.ended()
    log.critical("the background work has ended: so does the server", exc_info=fault)
    for listener in listeners:
        listener.should_exit = True


@asynccontextmanager
async def running(settings: Settings, path: Path) -> AsyncIterator[Parts]:
    """All parts, started; nothing listens yet."""
    metrics = Metrics()
    audit = AuditFile(settings.audit.file, lambda: datetime.now(UTC))
    async with AsyncExitStack() as stack:
        stack.callback(audit.close)
        journal = Journal(settings.jobs.journal)
        stack.callback(journal.close)
        pool = await stack.enter_async_context(AgentPool(transport_of(settings.agents), settings.agents.pool))
        workload = _workload_manager(settings, pool, metrics)
        secret = read_secret(settings.jobs.mark_secret)
        marks = Marks(secret, await cluster_name(settings, workload, journal))
        await refuse_if_lost(settings, journal, workload, marks)

        def tell(deed: Deed) -> None:
            audit(deed)
            metrics.deed_done(deed)

        jobs = await stack.enter_async_context(
            JobService(journal, workload, marks, settings=settings.jobs, audit=tell)
        )
        authenticator = await stack.enter_async_context(
            Authenticator.from_settings(settings.callers, rules_in_force(settings, path), SystemClock())
        )
        renewals = await stack.enter_async_context(Renewals(authenticator, SystemClock()))
        streams = StreamLimits(settings.limits.streams_per_user, settings.limits.streams)
        metrics.watch(
            LiveState(jobs=jobs, stale_s=lambda: _age(jobs), agents=pool.state, streams=lambda: streams.open)
        )
        services = Services(
            authenticator=authenticator,
            jobs=jobs,
            logs=JobLogReader(jobs, pool, Logs(settings.logs, time.monotonic), workload.appends),
            files=FilesOfJobs(jobs, pool),
            usage=await stack.enter_async_context(UsageOfJobs(jobs, workload)),
            metrics=metrics,
            readiness=Readiness(jobs, authenticator),
            streams=streams,
            renewals=renewals,
            refusals=Refusals(audit, SystemClock()),
            bodies=BodyBudget.for_bodies_of(settings.limits.body_bytes),
            body_limit=settings.limits.body_bytes,
        )
        yield Parts(build_app(services), authenticator, audit, jobs)


def _workload_manager(settings: Settings, pool: AgentPool, metrics: Metrics) -> WorkloadManager:
    if settings.workload_manager == "local":
        return LocalManager(settings.local)
    return SlurmManager(pool, observer_of(settings.agents), settings.slurm, on_call=metrics.slurm_called)


def _age(jobs: JobService) -> float:
    since = jobs.stale_since
    return (datetime.now(UTC) - since).total_seconds() if since else 0.0


@contextlib.contextmanager
def _hangup_ignored() -> Iterator[None]:
    """SIGHUP would end a server that still waits for Slurm: there is nothing to read again then."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, lambda: log.info("still starting: there is nothing to read again"))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def read_again(*steps: Callable[[], object]) -> None:
    """Take each step, whatever becomes of the ones before it."""
    for step in steps:
        try:
            step()
        except Exception:
            log.exception("something could not be read again: what was read before stays")


@contextlib.contextmanager
def _signals(listeners: list[Listener], parts: Parts) -> Iterator[None]:
    """TERM and INT end it; HUP has rules, certificate and audit file read or opened again."""

    def end() -> None:
        for listener in listeners:
            listener.should_exit = True

    def reload() -> None:
        certificates = (partial(reload_certificate, listener.config) for listener in listeners)
        read_again(parts.authenticator.reload_rules, parts.audit.reopen, *certificates)

    loop = asyncio.get_running_loop()
    actions = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number in actions:
            loop.remove_signal_handler(number)
