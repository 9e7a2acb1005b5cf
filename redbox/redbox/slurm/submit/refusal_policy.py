"""Users for whom there is no agent, since sudo or sshd refuses them: their jobs fail once that has lasted.

While a directory of users (LDAP, SSSD) is away, "not allowed" and "Permission denied" are said of users who
are allowed: their groups are not found, nor the keys that the directory has. The words are the same, and
red-box's account may ask neither for more. So a refusal is first answered as a fault that passes. A user who
is really refused waits for some minutes until the job fails, and sudo or sshd gets a few more tries: the pool
makes them ever more rarely, and `LoginLimit` two for each key in ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redbox.agents.errors import AgentRefused, UserRefused
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import SubmitOutcome, SubmitRejected, SubmitUnavailable

FINAL_AFTER_S = 180.0
FORGOTTEN_AFTER_S = 900.0  # without a refusal; after two, LoginLimit lets ten minutes pass


@dataclass(frozen=True, slots=True)
class RefusalTimes:
    """When one user was refused first, and last, without an agent in between."""

    first: float
    last: float


class RefusalPolicy:
    """The outcome of a submit whose user is refused, by how long that has lasted."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._refusals: dict[UnixUser, RefusalTimes] = {}

    def outcome_of(self, user: UnixUser, refused: AgentRefused) -> SubmitOutcome:
        if not isinstance(refused, UserRefused):
            return SubmitRejected(refused.detail)
        now = self._monotonic()
        before = self._refusals.get(user)
        lasts = before is not None and now - before.last < FORGOTTEN_AFTER_S
        first = before.first if before is not None and lasts else now
        self._refusals[user] = RefusalTimes(first, now)
        if now - first >= FINAL_AFTER_S:
            return SubmitRejected(refused.detail)
        return SubmitUnavailable(
            f"{refused.detail}. A directory of users that is away looks the same: the job fails if this "
            f"lasts for {FINAL_AFTER_S / 60:.0f} minutes"
        )

    def note_agent(self, user: UnixUser) -> None:
        """There is one: who was refused before is not any more."""
        self._refusals.pop(user, None)
