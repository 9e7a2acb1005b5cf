"""What the kubelet and Prometheus ask of a controller: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

Trouble = Callable[[], str | None]
"""What is wrong in one sentence, or None."""


def _well() -> str | None:
    return None


@asynccontextmanager
async def serving(
    port: int,
    registry: CollectorRegistry,
    *,
    unready: Trouble,
    unhealthy: Trouble = _well,
    address: str | None = None,
) -> AsyncIterator[int]:
    """Answer for as long as this lasts, at every address unless one is given; the bound port is told."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    app = web.Application()
    app.router.add_get("/healthz", _answering(unhealthy))
    app.router.add_get("/readyz", _answering(unready))
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _answering(trouble: Trouble) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        said = trouble()
        status = HTTPStatus.OK if said is None else HTTPStatus.SERVICE_UNAVAILABLE
        return web.Response(text=f"{said or 'ok'}\n", status=status)

    return answer
