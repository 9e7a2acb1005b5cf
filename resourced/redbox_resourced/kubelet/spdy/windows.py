"""Flow control of SPDY/3.1, for peers that take part in it. Pure.

spdystream, which API servers and kubectl use, sends no WINDOW_UPDATE and ignores those that come: with such a
peer only TCP holds back the sender, as with kubelets. A peer that sends a WINDOW_UPDATE or an initial window
takes part from then on; bytes are counted from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_WINDOW = 64 * 1024
MAX_WINDOW = 2**31 - 1
GRANT_FROM = 32 * 1024
"""Bytes read since the last WINDOW_UPDATE that make the next one worth sending."""


@dataclass(slots=True)
class FlowWindow:
    """Of one stream or of the whole connection, both directions."""

    initial: int = DEFAULT_WINDOW
    granted: int = 0
    sent: int = 0
    unacknowledged: int = 0
    """Bytes read here for which the peer was not yet given room."""

    @property
    def room(self) -> int:
        """How many bytes may be sent; below 0 where more were sent before the peer took part."""
        return self.initial + self.granted - self.sent

    def grow(self, by: int) -> bool:
        """Whether the peer keeps to the largest window."""
        self.granted += by
        return by > 0 and self.room <= MAX_WINDOW

    def to_grant(self) -> int:
        """What a WINDOW_UPDATE should say now; 0: none."""
        if self.unacknowledged < GRANT_FROM:
            return 0
        amount, self.unacknowledged = self.unacknowledged, 0
        return amount
