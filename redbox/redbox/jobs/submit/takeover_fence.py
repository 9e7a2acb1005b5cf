"""The fence of a take-over: what a journal that began after another one may submit, and when.

The old server's last submits may still be on their way to Slurm when the new one has rebuilt its journal
from Slurm's records. So the new one refuses submits for three minutes, and for ten minutes submits only
held, each looked up by its mark before it is released. The time of the take-over is kept in the
journal, and so survives a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from redbox.jobs.errors import JobsBusy
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.journal_facts import time_in

TAKEN_OVER_AT = "taken over at"


@dataclass(frozen=True, slots=True)
class TakeoverFence:
    """The time of the take-over, if there was one, and how long it restricts submits."""

    since: datetime | None
    settings: JobsSettings

    def refuse(self, now: datetime) -> None:
        """Raise Busy while nothing may be submitted."""
        left = self.settings.fence_refuses_s - self._age_s(now)
        if left > 0:
            raise JobsBusy(
                "This red-box has just taken over: submits wait until those of the one before it "
                f"have reached Slurm ({left:.0f} s).",
                retry_after=left,
            )

    def holds_since(self, now: datetime) -> datetime | None:
        """When another server may have sent a submit that arrives late; None: new keys are not held."""
        holds_s = self.settings.fence_refuses_s + self.settings.fence_holds_s
        return self.since if self._age_s(now) < holds_s else None

    def _age_s(self, now: datetime) -> float:
        return float("inf") if self.since is None else (now - self.since).total_seconds()


def fence_from(facts: dict[str, str], settings: JobsSettings) -> TakeoverFence:
    """As the journal has noted it."""
    return TakeoverFence(time_in(facts, TAKEN_OVER_AT), settings)
