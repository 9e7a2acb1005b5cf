"""How often an owner may do what costs red-box or Slurm much: a token bucket for each."""

from __future__ import annotations

from redbox.core.domain import Owner
from redbox.core.token_buckets import Rate, TokenBuckets
from redbox.jobs.errors import RateLimited


class OwnerLimit:
    """`what` and `setting` are the refusal's words: what there was too much of, and what may raise it."""

    def __init__(self, what: str, rate: Rate, setting: str = "") -> None:
        self._what = what
        self._rate = rate
        self._setting = f" ({setting})" if setting else ""
        self._buckets = TokenBuckets[Owner]()

    def charge(self, owner: Owner, now: float) -> None:
        """Take one, or raise RateLimited."""
        if pause := self._buckets.of(owner, self._rate).wait(now):
            share = f"{self._rate.per_second:g} a second{self._setting}, after {self._rate.burst:g} at once"
            raise RateLimited(
                f"Too many {self._what}: your share is {share}. Send this again later.",
                retry_after=max(1.0, pause),
            )
