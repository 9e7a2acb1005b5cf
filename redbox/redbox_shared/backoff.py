"""Exponential backoff: the pause before the next try grows with each failure in a row, up to a bound."""

from __future__ import annotations

MOST_DOUBLINGS = 64  # a float overflows at 1024


class Backoff:
    """The pauses between tries; the caller counts its failures in a row and resets the count on success."""

    def __init__(self, first_s: float, longest_s: float, *, factor: float = 2.0, jitter: float = 0.5) -> None:
        """`jitter` is the part of each pause that is random, so that callers do not retry all at once."""
        self._first_s = first_s
        self._longest_s = longest_s
        self._factor = factor
        self._jitter = jitter

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures in a row; 0 and 1 both give the first pause."""
        import random  # noqa: PLC0415 - memory of each companion, which seldom waits

        jitter = random.uniform(1.0 - self._jitter, 1.0)  # noqa: S311 (spreads load)
        return self.full_pause_s(failures) * jitter

    def full_pause_s(self, failures: int) -> float:
        """The same without jitter."""
        exponent = min(max(failures - 1, 0), MOST_DOUBLINGS)
        return min(self._longest_s, self._first_s * self._factor**exponent)
