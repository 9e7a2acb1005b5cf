"""A controller's process: SIGTERM, the Lease, and /healthz, /readyz and /metrics.

Nothing is written before the Lease is held. SIGTERM cancels what is under way: a reconciliation that is cut
short is repeated by the next process, for which the Lease is free at once. A lost Lease ends the process too.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
from prometheus_client import CollectorRegistry

from redbox_kube.api.lease import Lease, LeaseLost
from redbox_kube.api.objects import ObjectClient
from redbox_kube.runtime.health_server import HealthCheck, serving

log = structlog.get_logger(__name__)


@dataclass
class LeaderProcess:
    """What is served by each replica, and the work of the one that holds the Lease."""

    lease: Lease
    registry: CollectorRegistry
    port: int
    unready: HealthCheck = lambda: None
    """Of the leader. A replica that waits for the Lease is ready to take over."""
    unhealthy: HealthCheck = lambda: None
    leads: bool = field(default=False, init=False)

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Acquire the Lease, and work until cancelled."""
        health = serving(self.port, self.registry, unready=self.why_unready, unhealthy=self.unhealthy)
        async with health, self.lease.leading():
            self.leads = True
            log.info("leading", lease=self.lease.name)
            await work()

    def why_unready(self) -> str | None:
        if self.leads:
            return self.unready()
        return None if self.lease.leader else "the Lease has not been read yet"


async def run_until_sigterm(field_manager: str, work: Callable[[ObjectClient], Awaitable[None]]) -> None:
    """Connect to the API server and work; exit code 1 if the Lease is lost."""
    main = asyncio.current_task()
    assert main is not None  # noqa: S101 (a coroutine runs in a task)
    # The first process of a container has no default for SIGTERM.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
    objects = await ObjectClient.connect(field_manager)
    try:
        await work(objects)
    except asyncio.CancelledError:
        log.info("received SIGTERM, shutting down")
    except ExceptionGroup as faults:
        if faults.split(LeaseLost)[1] is not None:
            raise
        log.exception("the Lease is lost: the process ends, and waits for the Lease after its restart")
        raise SystemExit(1) from None
    finally:
        await objects.close()
