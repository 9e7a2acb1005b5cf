"""Logins by ssh: few at once and few that fail, since sshd (MaxStartups) and fail2ban shut out who has many.

All users of red-box share its address, so that one user's wrong key must not have it banned for all. So many
logins may fail in a time, two of them with each credential, and half of them with such as have failed before,
which leaves some for others. As many are tried at once as could fail together; the others wait for them.

A credential whose last login succeeded is not held back by failures of others: one such login may always be
under way. Where two of these fail, the site refuses all (a maintenance, another CA): then each credential
counts as one that may fail.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redbox.agents.errors import AgentRefused, AgentUnavailable, LoginDenied

AT_ONCE = 5
"""Logins under way: from ten of all its clients on sshd drops some (MaxStartups 10:30:100)."""
OF_ONE_CREDENTIAL = 2
WITHDRAWN_FROM_ALL = 2
"""So many accepted credentials that fail have one cause."""


@dataclass(frozen=True, slots=True)
class FailedLogins:
    """How many may fail in which time; fail2ban's defaults ban at 5 in 10 minutes."""

    most: int = 4
    within_s: float = 600.0


class LoginLimit:
    """Admits logins to one login node."""

    def __init__(self, allowed: FailedLogins, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowed = allowed
        self._clock = clock
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._failed: deque[tuple[float, str]] = deque()  # when, and which credential
        self._accepted: set[str] = set()
        self._rejected: set[str] = set()  # those whose last login failed
        self._withdrawn: deque[tuple[float, str]] = deque()  # when an accepted one failed, and which
        self._under_way: list[str] = []
        self._ended = asyncio.Event()  # set, and replaced, at each end of a login

    @asynccontextmanager
    async def login(self, credential: str, last_refusal: str = "") -> AsyncIterator[None]:
        """Wait for a turn and log in in the block, whose AgentRefused and LoginDenied count.

        Raises AgentUnavailable where the next one has to wait.

        `credential` identifies the key, or for certificates of our own the user.
        """
        await self._admit(credential, last_refusal)
        self._under_way.append(credential)
        try:
            async with self._turn:
                yield
            self._accepted.add(credential)
            self._rejected.discard(credential)
        except (AgentRefused, LoginDenied):
            self._count_failure(credential)
            raise
        finally:
            self._under_way.remove(credential)
            self._ended.set()
            self._ended = asyncio.Event()

    async def _admit(self, credential: str, last_refusal: str) -> None:
        """Wait until it may be tried."""
        while True:
            self._forget_old()
            if credential in self._accepted:
                own, most = 0, self._allowed.most
                if not self._accepted.intersection(self._under_way):
                    return
            else:
                self._refuse_beyond(credential, last_refusal)
                own = self._failures_of(credential) + self._under_way.count(credential)
                most = self._most(credential)
            if own < OF_ONE_CREDENTIAL and len(self._failed) + len(self._under_way) < most:
                return
            await self._ended.wait()

    def _count_failure(self, credential: str) -> None:
        now = self._clock()
        self._failed.append((now, credential))
        self._rejected.add(credential)
        if credential in self._accepted:
            self._accepted.discard(credential)
            self._withdrawn.append((now, credential))
            if len({withdrawn for _, withdrawn in self._withdrawn}) >= WITHDRAWN_FROM_ALL:
                self._accepted.clear()

    def _forget_old(self) -> None:
        before = self._clock() - self._allowed.within_s
        for failures in (self._failed, self._withdrawn):
            while failures and failures[0][0] <= before:
                failures.popleft()

    def _most(self, credential: str) -> int:
        """Half of the failures are left to credentials that were not tried before."""
        most = self._allowed.most
        return max(1, most // 2) if credential in self._rejected else most

    def _failures_of(self, credential: str) -> int:
        return sum(failed == credential for _, failed in self._failed)

    def _refuse_beyond(self, credential: str, last_refusal: str) -> None:
        own = [at for at, failed in self._failed if failed == credential]
        if len(own) >= OF_ONE_CREDENTIAL:
            first, what = own[-OF_ONE_CREDENTIAL], f"{len(own)} logins with this key"
        elif len(self._failed) >= self._most(credential):
            first, what = self._failed[0][0], f"{len(self._failed)} logins of red-box"
        else:
            return
        left = max(1.0, first + self._allowed.within_s - self._clock())
        reason = f" ({last_refusal})" if last_refusal else ""
        raise AgentUnavailable(
            f"{what} have failed within {self._allowed.within_s:.0f} s{reason}: the next one waits "
            f"{left:.0f} s, so that the login node does not ban red-box (fail2ban). "
            "Another key is tried at once",
            retry_after=left,
        )
