"""Connections whose TLS and HTTP are charged to the share of the red-box at their other end.

Both are done by the event loop before any reader has a byte, and a server chooses what they cost: a record of
TLS, or a chunk of HTTP, may have one byte. aiohttp stops reading while its buffers are full, so that what is
charged here is bounded as soon as the reader rests.
"""

from __future__ import annotations

import ssl
from typing import Any

from aiohttp.client_proto import ResponseHandler

from redbox_api.limits.time_share import TimeShare


def charged_tls(context: ssl.SSLContext, share: TimeShare) -> ssl.SSLContext:
    """The context, whose connections charge handshakes and records."""

    class ChargedTLS(ssl.SSLObject):
        """One connection's TLS."""

        def do_handshake(self) -> None:
            with share.charged():
                super().do_handshake()

        def read(self, *wanted: Any) -> Any:  # noqa: ANN401 (as the base class)
            with share.charged():
                return super().read(*wanted)

    context.sslobject_class = ChargedTLS
    return context


def charged_http(share: TimeShare) -> type[ResponseHandler]:
    """Handlers of connections that charge the parsing of HTTP."""

    class ChargedHandler(ResponseHandler):
        """One connection's HTTP."""

        def data_received(self, data: bytes) -> None:
            with share.charged():
                super().data_received(data)

    return ChargedHandler
