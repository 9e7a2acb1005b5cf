"""The memory of idle TLS connections.

asyncio fills a buffer of 256 KiB with zeros for each of them: it is resident, although an idle connection
needs none of it, and a record of TLS has at most 16 KiB.
"""

from asyncio import sslproto

BUFFER_BYTES = 32 * 1024


def shrink_tls_buffers() -> None:
    """Those of all connections that this process opens from now on."""
    sslproto.SSLProtocol.max_size = BUFFER_BYTES
