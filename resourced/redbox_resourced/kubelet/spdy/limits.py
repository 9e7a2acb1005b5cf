"""What one connection may hold, and for how long it may be silent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SpdyLimits:
    """Of one connection."""

    streams: int = 512
    """Open at once: a forward of ports has two for each connection."""
    stream_bytes: int = 256 * 1024
    """Received on a stream and not read, with what its pieces cost; up to one piece more."""
    session_bytes: int = 1024 * 1024
    """The same of all streams, and what their readers have not passed on."""
    backlog_bytes: int = 512 * 1024
    """Of a peer that sends frames to be answered and does not read the answers."""
    unread_s: float = 3600.0
    """A peer may stop reading for long: `kubectl exec ... | less`."""
    idle_s: float = 4 * 3600.0
    """Without a frame: the kubelet's streamingConnectionIdleTimeout. kubectl sends a PING every 5 s."""
