"""The HTTP server of a controller's /healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

HealthCheck = Callable[[], str | None]
"""A check: a problem in one sentence, or None."""


@asynccontextmanager
async def serving(
    port: int,
    registry: CollectorRegistry,
    *,
    unready: HealthCheck,
    unhealthy: HealthCheck = lambda: None,
    address: str | None = None,
) -> AsyncIterator[int]:
    """Serve during the body, on all addresses unless one is given; yields the port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    app = web.Application()
    app.router.add_get("/healthz", _handler(unhealthy))
    app.router.add_get("/readyz", _handler(unready))
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _handler(check: HealthCheck) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        problem = check()
        status = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        return web.Response(text=f"{problem or 'ok'}\n", status=status)

    return answer
