"""How often the workload manager is queried: a token bucket of calls, and the interval between polls.

The cost does not grow with the number of jobs: one call shows them all. The interval grows with the time that
a call takes, so that a slow controller is queried less.
"""

from __future__ import annotations

from redbox.core.domain import Owner
from redbox.jobs.settings import JobsSettings

MOST_BUCKETS = 10_000
ROUNDING = 1e-6  # a wait that was slept to its end is over, whatever the last digit says
GLANCE = 0.5  # of a poll: one call of slurmctld, not two
CALL_SHARE = 20  # a call may take a twentieth of the time


class Bucket:
    """A token bucket."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._at = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until one may be taken; 0 takes it."""
        self._fill(now)
        if self._left > 1 - ROUNDING:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._per_second

    def reserve(self, now: float, cost: float = 1.0) -> float:
        """Take the next tokens in any case, in the order of calls; returns the seconds until they are due."""
        self._fill(now)
        self._left -= cost
        return max(0.0, -self._left / self._per_second)

    def _fill(self, now: float) -> None:
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now


class OwnerBuckets:
    """A token bucket for each owner."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: dict[Owner, Bucket] = {}

    def wait(self, owner: Owner, now: float) -> float:
        """Seconds until the owner may take one; 0 takes it."""
        if len(self._buckets) > MOST_BUCKETS:  # forgetting full buckets changes nothing
            self._buckets.clear()
        return self._buckets.setdefault(owner, Bucket(self._per_second, self._burst)).wait(now)


def interval(settings: JobsSettings, took_s: float, *, accounting: bool, faults: int) -> float:
    """Seconds from the end of one poll to the next.

    Each fault in a row doubles the wait.
    """
    between = max(settings.shortest_interval_s, CALL_SHARE * took_s) * 2.0 ** min(faults, 10)
    return min(longest(settings, accounting=accounting), between)


def longest(settings: JobsSettings, *, accounting: bool) -> float:
    """The longest pause. Without accounting a job must be polled before the queue forgets it."""
    if accounting:
        return settings.longest_interval_s
    return min(settings.longest_interval_s, max(settings.shortest_interval_s, settings.min_job_age_s / 3))


def soon(settings: JobsSettings, took_s: float) -> float:
    """Seconds from the end of one poll to one that a submit or a cancel requested."""
    return min(settings.longest_interval_s, max(settings.shortest_interval_s / 4, CALL_SHARE / 4 * took_s))
