"""Credit: what one end of a stream may send before the other one has consumed what came earlier.

Both ends begin with a window. The sender waits while it has less credit than its next message costs. The
receiver grants again what it has consumed, as soon as that is half of the window: a message of credit for
each one of data is as many messages back as forward. So a sender whose messages cost at most the other half
never waits for ever. A receiver whose senders may be others' grants the rest, too, once nothing more comes.

Joined into the programs that run alone: Python 3.6.
"""


class ReceiveCredit:
    """Of one direction of a stream, at its receiver."""

    def __init__(self, first: int, later: int = 0) -> None:
        """The sender begins with `first`; `later` is the rest of the window, which is still to be granted."""
        self.part = first // 2
        self.consumed = later
        """And not granted again."""
        self._left = first

    def receive(self, cost: int) -> bool:
        """Whether the sender had credit for it."""
        self._left -= cost
        return self._left >= 0

    def consume(self, cost: int) -> int:
        """Return what is to be granted now: a part, or nothing."""
        self.consumed += cost
        return self.take() if self.consumed >= self.part else 0

    def take(self) -> int:
        """Return all that can be granted."""
        granted, self.consumed = self.consumed, 0
        self._left += granted
        return granted
