"""`redbox serve`: every part made from the settings, joined, started in order and ended in reverse.

What each part does is its own affair; here it is only said who stands on whom.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI

from redbox.agents.pool import AgentPool
from redbox.audit import AuditFile
from redbox.callers.authenticator import Authenticator
from redbox.callers.peers import PeerAwareProtocol
from redbox.clock import SystemClock
from redbox.config import Settings, rules_in_force
from redbox.files.service import FilesOfJobs
from redbox.http.app import build_app
from redbox.http.services import Services
from redbox.http.stream_limits import StreamLimits
from redbox.jobs.audit import Deed
from redbox.jobs.journal import Journal
from redbox.jobs.marks import Marks, read_secret
from redbox.jobs.service import Jobs
from redbox.local.workload import LocalManager
from redbox.logs.of_jobs import JobLogReader
from redbox.logs.service import Logs
from redbox.metrics import LiveState, Metrics
from redbox.slurm.workload import SlurmManager
from redbox.transports import observer_of, transport_of
from redbox.workload import WorkloadFault, WorkloadManager

log = structlog.get_logger(__name__)
GRACE_S = 5
SLURM_PAUSE_S = 2.0


@dataclass
class Parts:
    """What signals and listeners need of a server that runs."""

    app: FastAPI
    authenticator: Authenticator
    audit: AuditFile


class Readiness:
    """Ready is: the background work goes on."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def unready(self) -> str | None:
        """Stale states do not make it unready: it still submits, and says what is stale."""
        return None if self._jobs.alive else "the background work has ended: see the log"


async def serve(settings: Settings, path: Path) -> None:
    """Serve until told to end."""
    async with running(settings, path) as parts:
        listeners = list(_listeners(settings, parts.app))
        with _signals(listeners, parts):
            async with asyncio.TaskGroup() as group:
                for listener in listeners:
                    group.create_task(listener.serve())


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
        marks = Marks(read_secret(settings.jobs.mark_secret), await _slurm_cluster(workload))

        def tell(deed: Deed) -> None:
            audit(deed)
            metrics.deed_done(deed)

        jobs = await stack.enter_async_context(
            Jobs(journal, workload, marks, settings=settings.jobs, audit=tell)
        )
        authenticator = await stack.enter_async_context(
            Authenticator.from_settings(settings.callers, rules_in_force(settings, path), SystemClock())
        )
        streams = StreamLimits(settings.limits.streams_per_user, settings.limits.streams)
        metrics.watch(
            LiveState(jobs=jobs, stale_s=lambda: _age(jobs), agents=pool.state, streams=lambda: streams.open)
        )
        services = Services(
            authenticator=authenticator,
            jobs=jobs,
            logs=JobLogReader(jobs, pool, Logs(settings.logs, time.monotonic)),
            files=FilesOfJobs(jobs, pool),
            metrics=metrics,
            readiness=Readiness(jobs),
            streams=streams,
            body_limit=settings.limits.body_bytes,
        )
        yield Parts(build_app(services), authenticator, audit)


def _workload_manager(settings: Settings, pool: AgentPool, metrics: Metrics) -> WorkloadManager:
    if settings.workload_manager == "local":
        return LocalManager(settings.local)
    return SlurmManager(pool, observer_of(settings.agents), settings.slurm, on_call=metrics.slurm_called)


async def _slurm_cluster(workload: WorkloadManager) -> str:
    """The name that marks are bound to; without Slurm's answer nothing can be submitted or recognised."""
    while True:
        try:
            return (await workload.cluster()).name
        except WorkloadFault as fault:
            log.warning("Slurm does not answer; waiting for it", detail=fault.detail)
            await asyncio.sleep(SLURM_PAUSE_S)


def _age(jobs: Jobs) -> float:
    since = jobs.stale_since
    return (datetime.now(UTC) - since).total_seconds() if since else 0.0


class Listener(uvicorn.Server):
    """A uvicorn server that leaves signals to us: there are two of them in one process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listeners(settings: Settings, app: FastAPI) -> Iterator[Listener]:
    listen, tls = settings.listen, settings.tls
    common = {
        "app": app,
        "log_config": None,
        "access_log": False,
        "lifespan": "off",
        "http": PeerAwareProtocol,
        "loop": "none",
        "server_header": False,
        "timeout_graceful_shutdown": GRACE_S,
    }
    if listen.port:
        yield Listener(
            uvicorn.Config(
                **common,  # type: ignore[arg-type]
                host=listen.address,
                port=listen.port,
                ssl_certfile=str(tls.certificate_file),
                ssl_keyfile=str(tls.key_file),
            )
        )
    if listen.unix_socket is not None:
        listen.unix_socket.unlink(missing_ok=True)  # what a server that was killed left behind
        yield Listener(uvicorn.Config(**common, uds=str(listen.unix_socket)))  # type: ignore[arg-type]


@contextlib.contextmanager
def _signals(listeners: list[Listener], parts: Parts) -> Iterator[None]:
    """TERM and INT end it; HUP has rules, certificate and audit file read or opened again."""

    def end() -> None:
        for listener in listeners:
            listener.should_exit = True

    def reload() -> None:
        parts.authenticator.reload_rules()
        parts.audit.reopen()
        for listener in listeners:
            _reload_certificate(listener.config)

    loop = asyncio.get_running_loop()
    actions = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number in actions:
            loop.remove_signal_handler(number)


def _reload_certificate(config: uvicorn.Config) -> None:
    """New connections get the new certificate; a bad one is said, and the old one stays."""
    if config.ssl is None or config.ssl_certfile is None or config.ssl_keyfile is None:
        return
    try:
        config.ssl.load_cert_chain(config.ssl_certfile, config.ssl_keyfile)
    except OSError as error:
        log.error("the new certificate cannot be used, the old one stays", error=str(error))  # noqa: TRY400
