"""Logins by ssh: few at once and few that fail, since sshd (MaxStartups) and fail2ban shut out who has many.

All users of red-box share its address, so that one user's wrong key must not have it banned for all. So many
logins may fail in a time, two of them with each credential, and half of them with such as have failed before,
which leaves some for others. As many are tried at once as could fail together; the others wait for them. A
credential has two of these places, failed or under way: a login may hang in its user's home.

A credential whose last login succeeded is not held back by failures of others: one of the failures is left to
such credentials. Where two of these fail, the site refuses all (a maintenance, another CA): then each
credential counts as one that may fail. Failures outlive the process (`failed_logins`).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from redbox.agents.errors import AgentRefused, AgentUnavailable, LoginDenied
from redbox.agents.transports.failed_logins import FailedLogin, FailedLoginRecord, FailedLogins

AT_ONCE = 5
"""Logins under way: from ten of all its clients on sshd drops some (MaxStartups 10:30:100)."""
OF_ONE_CREDENTIAL = 2
WITHDRAWN_FROM_ALL = 2
"""So many accepted credentials that fail have one cause."""


class LoginLimit:
    """Admits logins to one login node."""

    def __init__(self, allowed: FailedLogins, clock: Callable[[], float] = time.time) -> None:
        self._allowed = allowed
        self._clock = clock
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._failed = FailedLoginRecord(allowed, clock)
        self._accepted: set[str] = set()
        self._rejected: set[str] = set()  # those whose last login failed
        self._withdrawn: deque[tuple[float, str]] = deque()  # when an accepted one failed, and which
        self._under_way: list[str] = []
        self._ended = asyncio.Event()  # set, and replaced, at each end of a login

    @asynccontextmanager
    async def login(self, credential: str) -> AsyncIterator[None]:
        """Wait for a turn and log in in the block, whose AgentRefused and LoginDenied count.

        Raises AgentUnavailable where the next one has to wait.

        `credential` identifies user and key, or for certificates of our own the user.
        """
        await self._admit(credential)
        self._under_way.append(credential)
        try:
            async with self._turn:
                yield
            self._accepted.add(credential)
            self._rejected.discard(credential)
        except (AgentRefused, LoginDenied) as error:
            self._count_failure(credential, error.detail)
            raise
        finally:
            self._under_way.remove(credential)
            self._ended.set()
            self._ended = asyncio.Event()

    async def _admit(self, credential: str) -> None:
        """Wait until it may be tried."""
        while True:
            failed = self._failed.recent()
            self._refuse_beyond(credential, failed)
            under_way = self._under_way.count(credential)
            own = under_way + sum(login.credential == credential for login in failed)
            has_place = not under_way or own < OF_ONE_CREDENTIAL
            if has_place and len(failed) + len(self._under_way) < self._most(credential):
                return
            await self._ended.wait()

    def _count_failure(self, credential: str, reason: str) -> None:
        now = self._clock()
        self._failed.add(credential, reason)
        self._rejected.add(credential)
        while self._withdrawn and self._withdrawn[0][0] <= now - self._allowed.within_s:
            self._withdrawn.popleft()
        if credential in self._accepted:
            self._accepted.discard(credential)
            self._withdrawn.append((now, credential))
            if len({withdrawn for _, withdrawn in self._withdrawn}) >= WITHDRAWN_FROM_ALL:
                self._accepted.clear()

    def _most(self, credential: str) -> int:
        """Half of the failures are left to credentials that were not tried before, one to accepted ones."""
        most = self._allowed.most
        if credential in self._rejected:
            return max(1, most // 2)
        return max(1, most - 1) if self._accepted and credential not in self._accepted else most

    def _refuse_beyond(self, credential: str, failed: Sequence[FailedLogin]) -> None:
        own = self._own(credential, failed)
        if len(own) >= OF_ONE_CREDENTIAL:
            first, what = own[-OF_ONE_CREDENTIAL], f"{len(own)} logins with this key"
        elif len(failed) >= self._most(credential):
            first, what = failed[0], f"{len(failed)} logins of red-box"
        else:
            return
        left = max(1.0, first.at + self._allowed.within_s - self._clock())
        reason = f" ({own[-1].reason})" if own else ""
        forget = f", or this one, once {self._allowed.file} is removed" if self._allowed.file else ""
        raise AgentUnavailable(
            f"{what} have failed within {self._allowed.within_s:.0f} s{reason}: the next one waits "
            f"{left:.0f} s, so that the login node does not ban red-box (fail2ban). "
            f"Another key is tried at once{forget}",
            retry_after=left,
        )

    def _own(self, credential: str, failed: Sequence[FailedLogin]) -> list[FailedLogin]:
        """Its failures; those before its last success do not count."""
        if credential in self._accepted:
            return []
        return [login for login in failed if login.credential == credential]
