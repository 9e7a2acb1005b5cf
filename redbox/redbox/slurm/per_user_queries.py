"""Runs a query through many users' agents at a time: a silent agent delays only its own user's jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

import structlog

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError

log = structlog.get_logger(__name__)
T = TypeVar("T")
AT_ONCE = 8
SHORTEST_S, SLOWER = 2.0, 4  # the deadline after silence, and how much longer than the slowest other it is
IN_ALL_S = 20.0  # after silence, for all commands of a query: jobs.call_limit_s is for the query of all users

UserQuery = Callable[[UnixUser, float | None], Awaitable[T]]
"""Run as a user, within a deadline in seconds if one is given; raises WorkloadManagerError."""


class PerUserQueries:
    """A user who alone did not answer the last time gets a shorter deadline, and one for all commands."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._deadlines_s: dict[UnixUser, float] = {}  # of users who did not answer when others did

    async def run(self, users: Collection[UnixUser], query: UserQuery[T]) -> dict[UnixUser, T]:
        """The answers of those who gave one, in their order; raises the first error where none did."""
        answers: dict[UnixUser, T] = {}
        errors: dict[UnixUser, WorkloadManagerError] = {}
        slots = asyncio.Semaphore(AT_ONCE)
        slowest_s: float | None = None

        async def run_as(user: UnixUser) -> None:
            nonlocal slowest_s
            async with slots:
                started, deadline = self._monotonic(), self._deadlines_s.get(user)
                try:
                    async with asyncio.timeout(None if deadline is None else IN_ALL_S):
                        answers[user] = await query(user, deadline)
                except WorkloadManagerError as error:
                    errors[user] = error
                except TimeoutError:
                    detail = f"the agent of {user.name} took more than {IN_ALL_S:.0f} s for all its answers"
                    errors[user] = WorkloadManagerError(detail, timed_out=True)
                except Exception as fault:  # what one user's agent answers must not end the query of all
                    log.exception("an answer could not be read", user=user.name)
                    errors[user] = WorkloadManagerError(f"an answer of {user.name}'s agent: {fault}")
                else:
                    slowest_s = max(slowest_s or 0.0, self._monotonic() - started)

        try:
            async with asyncio.TaskGroup() as group:
                for user in users:
                    group.create_task(run_as(user))
        finally:  # also on cancellation: the users who caused it get shorter deadlines
            for user in users:
                self._deadlines_s.pop(user, None)
                if user not in answers and slowest_s is not None:
                    self._deadlines_s[user] = max(SHORTEST_S, SLOWER * slowest_s)
        if errors and not answers:
            raise next(errors[user] for user in users)
        return {user: answers[user] for user in users if user in answers}
