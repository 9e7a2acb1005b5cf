"""Options of TCP connections, for `setsockopt`."""

import socket
import struct

KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A peer that vanished without a word is noticed in 30 s, also where only it would have spoken."""
RESET_ON_CLOSE = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
"""The peer does not take what it got for the whole."""
CLOSE_IN_ORDER = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
"""As without the option before."""
