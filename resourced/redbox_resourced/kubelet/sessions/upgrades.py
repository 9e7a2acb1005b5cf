"""How a request becomes a session: by SPDY, whose client opens the streams, or by WebSocket with channels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from aiohttp import web

from redbox_resourced.kubelet.rejection import RequestRejected
from redbox_resourced.kubelet.sessions import client_streams, port_forward
from redbox_resourced.kubelet.sessions.client_streams import STREAM_TYPE, StreamOptions
from redbox_resourced.kubelet.sessions.port_forward import read_port
from redbox_resourced.kubelet.sessions.stream_connection import Upgrade
from redbox_resourced.kubelet.spdy.upgrade import SpdyUpgrade, negotiate
from redbox_resourced.kubelet.websocket.upgrade import WebSocketUpgrade, is_websocket

CHANNELS = ("stdin", "stdout", "stderr", "error", "resize")
"""By their numbers."""
OUTPUTS = ("stdout", "stderr", "error")
MOST_PORTS = 64


def upgrade_for_command(request: web.Request, options: StreamOptions) -> Upgrade:
    """Of exec and attach; raises NotUpgradable."""
    if not is_websocket(request):
        return SpdyUpgrade(request, negotiate(request, client_streams.PROTOCOLS))
    channels = [{STREAM_TYPE: name} if name in options.names else None for name in CHANNELS]
    first = next(name for name in OUTPUTS if name in options.names)
    return WebSocketUpgrade(request, channels, greeting=[(CHANNELS.index(first), b"")])


def upgrade_for_forward(request: web.Request) -> Upgrade:
    """Of portForward: over a WebSocket its URL has the ports, one connection for each."""
    if not is_websocket(request):
        return SpdyUpgrade(request, negotiate(request, port_forward.PROTOCOLS))
    ports = _read_ports(request.query.getall("port", []))
    channels = [
        {STREAM_TYPE: kind, "port": str(port), "requestid": str(place)}
        for place, port in enumerate(ports)
        for kind in ("data", "error")
    ]
    in_both = chain.from_iterable((port, port) for port in ports)
    greeting = [(number, port.to_bytes(2, "little")) for number, port in enumerate(in_both)]
    return WebSocketUpgrade(request, channels, greeting=greeting)


def _read_ports(texts: Sequence[str]) -> list[int]:
    words = [word for text in texts for word in text.split(",")]
    if not words:
        raise RequestRejected('query parameter "port" is required')
    if len(words) > MOST_PORTS:
        raise RequestRejected(f"{len(words)} ports are asked for, and one forward has {MOST_PORTS} at most")
    ports = [read_port(word) for word in words]
    if None in ports:
        wrong = words[ports.index(None)]
        raise RequestRejected(f"{wrong[:16]!r} is no port: it is a number from 1 to 65535")
    return [port for port in ports if port is not None]
