"""How often the workload manager is queried: the interval between polls.

The cost does not grow with the number of jobs: one call shows them all. The interval grows with the time that
a call takes, so that a slow controller is queried less.
"""

from __future__ import annotations

from redbox.jobs.settings import JobsSettings

GLANCE = 0.5  # of a poll: one call of slurmctld, not two
CALL_SHARE = 20  # a call may take a twentieth of the time


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
