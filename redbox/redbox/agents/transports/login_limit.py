"""Logins by ssh: few at once and few that fail, since sshd (MaxStartups) and fail2ban shut out who has many.

All users of red-box share its address, so that one user's wrong key must not have it banned for all. So many
logins may fail in a time, two of them with each credential, and half of them with such as have failed before,
which leaves some for others. A credential whose last login succeeded is never held back. Another one is tried
at once, unless those that are being tried would be too many with it if all failed: then it waits for them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redbox.agents.errors import AgentRefused, AgentUnavailable

AT_ONCE = 5
"""Logins under way: from ten of all its clients on sshd drops some (MaxStartups 10:30:100)."""
OF_ONE_CREDENTIAL = 2


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
        self._on_trial: list[str] = []  # credentials of logins under way that may well fail
        self._trial_ended = asyncio.Event()  # set, and replaced, at each end of such a login

    @asynccontextmanager
    async def login(self, credential: str, last_refusal: str = "") -> AsyncIterator[None]:
        """Wait for a turn and log in in the block, whose AgentRefused counts; raises AgentUnavailable.

        `credential` identifies the key, or for certificates of our own the user.
        """
        on_trial = await self._admit(credential, last_refusal)
        try:
            async with self._turn:
                yield
            self._accepted.add(credential)
            self._rejected.discard(credential)
        except AgentRefused:
            self._accepted.discard(credential)
            self._rejected.add(credential)
            self._failed.append((self._clock(), credential))
            raise
        finally:
            if on_trial:
                self._on_trial.remove(credential)
                self._trial_ended.set()
                self._trial_ended = asyncio.Event()

    async def _admit(self, credential: str, last_refusal: str) -> bool:
        """Wait until it may be tried; returns whether it counts as one that may fail."""
        while credential not in self._accepted:
            self._refuse_beyond(credential, last_refusal)
            own = self._failures_of(credential) + self._on_trial.count(credential)
            if own < OF_ONE_CREDENTIAL and len(self._failed) + len(self._on_trial) < self._most(credential):
                self._on_trial.append(credential)
                return True
            await self._trial_ended.wait()
        return False

    def _most(self, credential: str) -> int:
        """Half of the failures are left to credentials that were not tried before."""
        most = self._allowed.most
        return max(1, most // 2) if credential in self._rejected else most

    def _failures_of(self, credential: str) -> int:
        return sum(failed == credential for _, failed in self._failed)

    def _refuse_beyond(self, credential: str, last_refusal: str) -> None:
        now = self._clock()
        while self._failed and self._failed[0][0] <= now - self._allowed.within_s:
            self._failed.popleft()
        own = [at for at, failed in self._failed if failed == credential]
        if len(own) >= OF_ONE_CREDENTIAL:
            first, what = own[-OF_ONE_CREDENTIAL], f"{len(own)} logins with this key"
        elif len(self._failed) >= self._most(credential):
            first, what = self._failed[0][0], f"{len(self._failed)} logins of red-box"
        else:
            return
        left = max(1.0, first + self._allowed.within_s - now)
        reason = f" ({last_refusal})" if last_refusal else ""
        raise AgentUnavailable(
            f"{what} have failed within {self._allowed.within_s:.0f} s{reason}: the next one waits "
            f"{left:.0f} s, so that the login node does not ban red-box (fail2ban). "
            "Another key is tried at once",
            retry_after=left,
        )
