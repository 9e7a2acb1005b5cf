"""The memory of idle TLS connections.

asyncio fills a buffer of 256 KiB with zeros for each of them: it is resident, although an idle connection
needs none of it. A transport reads into the buffer, and its connection takes the bytes out of it, in one turn
of the event loop: so all connections of a process share one, as large as asyncio's own. It only ever holds
encrypted bytes.
"""

from asyncio import sslproto
from typing import Any

BUFFER_BYTES = 256 * 1024
PIECE_BYTES = 32 * 1024
"""Passed on to OpenSSL at once: it keeps room for the most that it ever had."""
RECORD_BYTES = 16 * 1024
"""The largest of TLS: OpenSSL decrypts one at once, into as many bytes as it is asked for."""


def share_tls_buffer() -> None:
    """Among all connections that this process, which has one event loop, opens from now on."""
    buffer = bytearray(BUFFER_BYTES)
    view = memoryview(buffer)

    class SharedBufferProtocol(sslproto.SSLProtocol):
        max_size = RECORD_BYTES

        def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 (those of asyncio)
            super().__init__(*arguments, **options)
            self._ssl_buffer, self._ssl_buffer_view = buffer, view

        def buffer_updated(self, nbytes: int) -> None:
            try:
                for start in range(0, nbytes, PIECE_BYTES):
                    self._ssl_buffer_view = view[start : start + PIECE_BYTES]
                    super().buffer_updated(min(PIECE_BYTES, nbytes - start))
            finally:
                self._ssl_buffer_view = view

    sslproto.SSLProtocol = SharedBufferProtocol  # type: ignore[misc]
