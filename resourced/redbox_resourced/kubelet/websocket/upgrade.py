"""From an HTTP request to a connection that speaks a protocol of channel.k8s.io over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from redbox_resourced.kubelet.client_transport import LEAVE_S, ClientTransport, first_of
from redbox_resourced.kubelet.spdy.upgrade import NotUpgradable
from redbox_resourced.kubelet.turns import Turn
from redbox_resourced.kubelet.websocket.messages import SUBPROTOCOLS, UNNAMED, Subprotocol
from redbox_resourced.kubelet.websocket.session import ChannelSession

PROTOCOL_HEADER = "Sec-WebSocket-Protocol"
MAX_MESSAGE = 512 * 1024
"""Of a client's, which is held until it is whole."""


def is_websocket(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").strip().lower() == "websocket"


class WebSocketUpgrade:
    """A request for a WebSocket; raises NotUpgradable."""

    def __init__(
        self,
        request: web.Request,
        channels: Sequence[Mapping[str, str] | None],
        *,
        greeting: Sequence[tuple[int, bytes]],
    ) -> None:
        """`channels`: see ChannelSession; `greeting`: what is sent first, by the channels' numbers."""
        self._request = request
        self._channels = channels
        self._greeting = greeting
        self._subprotocol = _negotiate(request)
        self.response = web.WebSocketResponse(
            timeout=LEAVE_S,
            autoping=False,  # answered in the turn of its namespace, as all other messages
            autoclose=False,  # the client's close is answered when its session in the job has ended
            protocols=[self._subprotocol.name],
            compress=False,
            max_msg_size=MAX_MESSAGE,
            decode_text=False,
        )
        if not self.response.can_prepare(request):
            raise NotUpgradable("unable to upgrade: the request is no handshake of a WebSocket")

    @asynccontextmanager
    async def serve(
        self, turn: Turn, interrupt: asyncio.Event | None = None
    ) -> AsyncIterator[ChannelSession]:
        """See `Upgrade`."""
        client = ClientTransport(self._request)
        await self.response.prepare(self._request)
        session = ChannelSession(self.response, self._subprotocol, self._channels, turn, client.is_gone)
        await session.greet(self._greeting)
        receiving = asyncio.create_task(session.run())
        try:
            yield session
            leaving = asyncio.create_task(session.leave())
            try:
                await asyncio.wait({leaving}, timeout=LEAVE_S)
                if interrupt is not None:
                    await first_of(session.ended, interrupt)
            finally:
                leaving.cancel()
        finally:
            receiving.cancel()
            client.close(at_once=bool(session.problem))


def _negotiate(request: web.Request) -> Subprotocol:
    """The first that the client names and that is spoken here, as kubelets choose."""
    lists = request.headers.getall(PROTOCOL_HEADER, [])
    offered = [name.strip() for names in lists for name in names.split(",")]
    if not offered:
        return UNNAMED
    spoken = {subprotocol.name: subprotocol for subprotocol in SUBPROTOCOLS}
    for name in offered:
        if name in spoken:
            return spoken[name]
    raise NotUpgradable(f"unable to upgrade: {PROTOCOL_HEADER} names none of {', '.join(spoken)}")
