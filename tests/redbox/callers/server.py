"""A real uvicorn with red-box's protocols."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from redbox.callers.peers import PeerAwareProtocol


@asynccontextmanager
async def serving(app: Any, *, http: type[PeerAwareProtocol] = PeerAwareProtocol, **where: Any) -> Any:
    config = uvicorn.Config(app, http=http, lifespan="off", log_level="critical", **where)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield server
    finally:
        await server.shutdown()
