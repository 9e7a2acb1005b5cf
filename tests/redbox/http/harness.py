"""A whole red-box for tests: real HTTP on a Unix socket and on TLS, real callers, jobs and agents.

Only Slurm is simulated. The caller at the Unix socket is alice; alice's agent runs as the tests' own
user, or as nobody where that is root.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn

from redbox.agents.pool import AgentPool
from redbox.callers.authenticator import Authenticator
from redbox.callers.connection_limits import ConnectionLimiter
from redbox.callers.unix_accounts import AccountResolver, NssPolicy, UnixAccount
from redbox.core.clock import SystemClock
from redbox.core.gauges import MetricSource
from redbox.core.turns import TurnQueue
from redbox.files.service import JobFileService
from redbox.http.app import build_app
from redbox.http.metrics import ServerMetrics, StateCollector, TurnsCollector
from redbox.http.middleware.caller_budget import streams_budget
from redbox.http.middleware.rejected_callers import RejectionAudit
from redbox.http.middleware.stream_reauthorization import StreamReauthorization
from redbox.http.services import Services
from redbox.jobs.expected_starts import ExpectedStarts
from redbox.jobs.record.marks import Marks
from redbox.jobs.service import JobService
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.journal import Journal
from redbox.jobs.usage import UsageOfJobs
from redbox.logs.job_logs import JobLogReader
from redbox.logs.service import LogService
from redbox.logs.settings import LogSettings
from redbox.observability.job_audit import AuditEntry, no_audit
from redbox.server.certificates import CertificateAndKey, issue_server, make_authority
from redbox.server.listeners import WEBSOCKETS, bound_path, bound_port
from redbox.sessions.relays import RelayPool
from redbox.sessions.service import SessionService
from redbox.sessions.settings import ExecSettings
from redbox.settings import load_settings, rules_in_force
from redbox.volumes.service import VolumeService
from redbox.volumes.settings import VolumesSettings
from redbox.volumes.volume_index import VolumeIndex
from redbox_api.client import RedboxClient
from redbox_api.requests.sender import Deadlines
from tests.redbox.agents.harness import LaunchedTransport, tests_user
from tests.redbox.http.factories import NO_TLS, write_settings
from tests.redbox.http.fakes import (
    SCRIPT,
    AdvancedClock,
    Host,
    Ready,
    RunningClock,
    SoundedListener,
    StrictSlurm,
    same_job,
    stand_in_for_srun,
)
from tests.redbox.jobs.fakes import SimulatedSlurm

Result = TypeVar("Result")
BODY_LIMIT = 100_000
QUICK = JobsSettings(
    shortest_interval_s=0.02,
    longest_interval_s=0.1,
    reads_per_minute=60_000,
    read_burst=1000,
    bookmark_every_s=0.05,
    final_after_s=0.05,
    retention_every_s=3600,
)
ALICE_UID = tests_user().uid


@dataclass
class Stand:
    """What runs, and how to reach it."""

    directory: Path
    home: Path  # of alice: where the jobs of tests work
    tokens: dict[str, str]  # by who holds them
    slurm: SimulatedSlurm
    jobs: JobService
    services: Services
    ready: Ready
    authority: str
    settings: Path
    callers_clock: AdvancedClock  # by which tokens expire
    port: int = 0
    audited: list[AuditEntry] = field(default_factory=list)  # of sessions
    transport: LaunchedTransport = field(default_factory=LaunchedTransport)
    connections: ConnectionLimiter = field(default_factory=ConnectionLimiter)

    @property
    def socket(self) -> Path:
        return self.directory / "redbox.sock"

    @property
    def endpoint(self) -> str:
        return f"https://localhost:{self.port}"

    def at_socket(self, **options: Any) -> httpx.AsyncClient:
        """As alice."""
        options["transport"] = httpx.AsyncHTTPTransport(uds=str(self.socket), verify=NO_TLS)
        return httpx.AsyncClient(base_url="http://redbox", timeout=60, **options)

    def by_token(self, token: str) -> httpx.AsyncClient:
        """Over TLS; `token` is a holder's name, or a token."""
        context = ssl.create_default_context(cadata=self.authority)
        headers = {"authorization": f"Bearer {self.tokens.get(token, token)}"} if token else {}
        return httpx.AsyncClient(
            base_url=self.endpoint, verify=context, headers=headers, timeout=60, trust_env=False
        )

    def client(self, token: str | None = None, deadlines: Deadlines | None = None) -> RedboxClient:
        """The project's own client: at the socket, or by the token of a holder."""
        if token is None:
            return RedboxClient("http://redbox", socket=str(self.socket), deadlines=deadlines)

        async def current() -> str:
            return self.tokens[token]

        return RedboxClient(self.endpoint, token=current, ca_bundle=self.authority, deadlines=deadlines)

    async def submitted(self, key: str = "k1", **request: Any) -> str:
        """A job of alice that Slurm knows; returns its id."""
        body = {"batch": SCRIPT, "workingDirectory": str(self.home), **request}
        async with self.at_socket() as http:
            answer = await http.put(f"/v1/jobs/{key}", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["jobID"])

    async def writing(self, key: str = "k1", content: bytes = b"") -> tuple[str, Path]:
        """A job that runs and writes to a file; returns its id and the file."""
        job_id = await self.submitted(key)
        path = self.home / f"slurm-{job_id}.out"
        path.write_bytes(content)
        job = self.slurm.jobs[job_id]
        self.slurm.put(replace(job, stdout=str(path), stderr=str(path.with_suffix(".err"))))
        self.slurm.start(job_id)
        await self.until(key, lambda job: job["phase"] == "Running" and job["logs"].get("stdout"))
        return job_id, path

    async def until(self, key: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The job, once this holds of it."""
        async with self.at_socket() as http, asyncio.timeout(60):
            while True:
                change = asyncio.ensure_future(self.jobs.next_change())
                job: dict[str, Any] = (await http.get(f"/v1/jobs/{key}")).json()
                if holds(job):
                    change.cancel()
                    return job
                await change


NO_METRICS: Any = None
"""Of tests that ask for none."""


@asynccontextmanager
async def standing(
    *,
    stall_s: float = 60.0,
    body_limit: int = BODY_LIMIT,
    exec_settings: ExecSettings | None = None,
    slurm_metrics: MetricSource = NO_METRICS,
    **settings: Any,
) -> AsyncIterator[Stand]:
    """Everything, serving; `settings` change those of the jobs."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rb-")))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rb-home-", dir="/dev/shm")))
        os.chown(home, ALICE_UID, -1)
        tokens, path = write_settings(directory)
        authenticator = await stack.enter_async_context(_door(path, callers_clock := AdvancedClock()))
        clock = RunningClock()
        slurm = StrictSlurm(clock, next_id=os.getpid() * 1000)  # processes of jobs are found by their ids
        journal = Journal(directory / "journal")
        stack.callback(journal.close)
        transport = LaunchedTransport()
        stack.callback(transport.end_all)
        pool = await stack.enter_async_context(AgentPool(transport))
        jobs = await stack.enter_async_context(
            JobService(
                journal,
                slurm,
                Marks(bytes(range(32)), "hpc1"),
                clock=clock,
                settings=QUICK.model_copy(update=settings),
            )
        )
        volumes = await stack.enter_async_context(_volumes(journal, pool, home))
        usage = await stack.enter_async_context(UsageOfJobs(jobs, slurm))
        relays = await stack.enter_async_context(RelayPool(pool, stand_in_for_srun, same_job, environment={}))
        audited: list[AuditEntry] = []
        sessions = SessionService(
            jobs,
            relays,
            slurm,
            exec_settings or ExecSettings(enabled=True),
            clock=SystemClock(),
            audit=audited.append,
        )
        ready = Ready()
        reauthorization = StreamReauthorization(authenticator, SystemClock(), every_s=0.05, tick_s=0.02)
        services = replace(
            _services(
                authenticator,
                jobs,
                usage,
                pool,
                reauthorization,
                volumes=volumes,
                slurm=slurm,
                sessions=sessions,
                slurm_metrics=slurm_metrics,
            ),
            readiness=ready,
            credentials_expire_at=lambda: None,
            stall_s=stall_s,
            body_limit=body_limit,
        )
        authority = make_authority("tests", datetime.now(UTC))
        ca = authority.certificate.decode()
        facts = (directory, home, tokens, slurm, jobs, services, ready, ca, path, callers_clock)
        stand = Stand(*facts, audited=audited, transport=transport)
        pair = issue_server(authority, ["localhost"], [], datetime.now(UTC))
        await stack.enter_async_context(_listening(stand, pair))
        yield stand


@asynccontextmanager
async def _door(path: Path, clock: AdvancedClock) -> AsyncIterator[Authenticator]:
    settings = load_settings(path)
    host = Host(
        {
            "alice": UnixAccount("alice", ALICE_UID, frozenset({ALICE_UID, 500})),
            "bob": UnixAccount("bob", 2002, frozenset({2002, 500})),
        }
    )
    directory = AccountResolver(host, NssPolicy(), clock)
    rules = rules_in_force(settings, path)
    async with Authenticator.from_settings(settings.callers, rules, clock, directory) as authenticator:
        yield authenticator


def _volumes(journal: Journal, pool: AgentPool, home: Path) -> VolumeService:
    settings = VolumesSettings(directory=f"{home}/volumes")
    return VolumeService(VolumeIndex(journal), pool, settings, clock=SystemClock(), audit=no_audit)


def _services(
    authenticator: Authenticator,
    jobs: JobService,
    usage: UsageOfJobs,
    pool: AgentPool,
    reauthorization: StreamReauthorization,
    *,
    volumes: VolumeService,
    slurm: StrictSlurm,
    sessions: SessionService,
    slurm_metrics: MetricSource,
) -> Services:
    metrics, streams = ServerMetrics(), streams_budget(per_user=20, in_all=30)
    metrics.collect_from(TurnsCollector(TurnQueue(), lambda: 0))
    metrics.collect_from(
        StateCollector(
            jobs=jobs,
            stale_s=lambda: 0.0,
            certificate_ends=lambda: 1.8e9,
            agents=pool.state,
            streams=lambda: streams.held,
            sessions=lambda: sessions.count,
            forwarded=lambda: sessions.connection_count,
            relays=lambda: sessions.relay_count,
            volumes=lambda: volumes.count,
        )
    )
    return Services(
        authenticator=authenticator,
        jobs=jobs,
        logs=JobLogReader(jobs, pool, LogService(LogSettings(settle_s=0.02), time.monotonic), slurm),
        files=JobFileService(jobs, pool),
        expected_starts=ExpectedStarts(jobs, slurm),
        sessions=sessions,
        volumes=volumes,
        usage=usage,
        metrics=metrics,
        readiness=Ready(),
        credentials_expire_at=lambda: None,
        streams=streams,
        reauthorization=reauthorization,
        rejections=RejectionAudit(no_audit, SystemClock()),
        slurm_metrics=slurm_metrics,
    )


@asynccontextmanager
async def _listening(stand: Stand, pair: CertificateAndKey) -> AsyncIterator[None]:
    (stand.directory / "tls.crt").write_bytes(pair.certificate)
    (stand.directory / "tls.key").write_bytes(pair.key)
    common: dict[str, Any] = {
        "app": build_app(stand.services),
        "log_config": None,
        "access_log": False,
        "lifespan": "off",
        "timeout_graceful_shutdown": 1,
        **WEBSOCKETS,
    }
    tls: dict[str, Any] = {
        "ssl_certfile": str(stand.directory / "tls.crt"),
        "ssl_keyfile": str(stand.directory / "tls.key"),
    }
    bound = bound_port("127.0.0.1", 0)
    stand.port = bound.getsockname()[1]
    servers = [
        SoundedListener(uvicorn.Config(**common), bound_path(stand.socket), stand.connections),
        SoundedListener(uvicorn.Config(**common, **tls), bound, stand.connections),
    ]
    async with asyncio.TaskGroup() as group:
        for server in servers:
            group.create_task(server.listen())
        checks = group.create_task(stand.services.reauthorization.run())
        for server in servers:
            await server.listens.wait()
        try:
            yield
        finally:
            checks.cancel()
            for server in servers:
                server.should_exit = True


async def eventually(holds: Callable[[], bool]) -> None:
    """Poll for what has no event: a file that is gone, a task that has ended."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.01)


async def until_streams_are(stand: Stand, count: int) -> None:
    await eventually(lambda: stand.services.streams.held == count)


def problem(answer: httpx.Response) -> dict[str, Any]:
    """The problem document that a refusal must be."""
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == answer.status_code
    assert document["type"].startswith("https://redbox.dev/problems/")
    assert document["requestId"] == answer.headers["x-request-id"]
    return document


@contextmanager
def standing_in_thread(**settings: Any) -> Iterator[Stand]:
    """The same, for programs and tests that do not share its event loop."""
    ready: threading.Event = threading.Event()
    made: list[Stand] = []
    leave: list[Callable[[], object]] = []

    async def stand_until_left() -> None:
        left = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with standing(**settings) as stand:
            made.append(stand)
            leave.append(lambda: loop.call_soon_threadsafe(left.set))
            ready.set()
            await left.wait()

    def run() -> None:
        with contextlib.ExitStack() as always:
            always.callback(ready.set)
            asyncio.run(stand_until_left())

    thread = threading.Thread(target=run, name="red-box")
    thread.start()
    ready.wait()
    try:
        yield made[0]
    finally:
        if leave:
            leave[0]()
        thread.join()
