"""No caller fills the audit by what has no effect, and what was left out is counted."""

from dataclasses import dataclass, field

from redbox.core.token_buckets import Rate
from redbox.observability.audit_budget import AuditBudget
from redbox.observability.job_audit import REDBOX, AuditEntry
from tests.redbox.callers.factories import StoppedClock


@dataclass
class Recorded:
    """What was written, of a burst of three lines."""

    clock: StoppedClock = field(default_factory=StoppedClock)
    entries: list[AuditEntry] = field(default_factory=list)
    dropped: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.audit = AuditBudget(
            self.entries.append, self.clock, lambda: self.dropped.append(True), rate=Rate(5.0, 3.0)
        )

    def cancel(self, outcome: str, *, times: int, user: str | None = "alice", caller: str = "") -> None:
        for number in range(times):
            caller = caller or f"system:serviceaccount:physics:a{number}"
            self.audit(AuditEntry(caller, user, "cancel", f"kube/physics/a/{number}", outcome))


def test_lines_without_an_effect_beyond_the_budget_are_counted_in_one() -> None:
    recorded = Recorded()
    recorded.cancel("Conflict", times=100)
    recorded.cancel("same", times=20)
    assert len(recorded.entries) == 3
    recorded.audit.report()
    recorded.audit.report()
    *_, last = recorded.entries
    assert len(recorded.entries) == 4
    assert (last.caller, last.act, last.outcome) == ("alice", "audit", "Dropped")
    assert last.detail == "117 lines without an effect were left out (cancel Conflict: 97, cancel same: 20)"
    assert len(recorded.dropped) == 117


def test_what_had_an_effect_is_always_a_line() -> None:
    recorded = Recorded()
    recorded.cancel("Conflict", times=50)
    recorded.cancel("done", times=50)
    recorded.cancel("tombstone", times=50)
    recorded.cancel("Conflict", times=50, user=None, caller=REDBOX)
    assert len(recorded.entries) == 153


def test_one_users_budget_is_not_anothers() -> None:
    recorded = Recorded()
    recorded.cancel("Conflict", times=50)
    recorded.cancel("Conflict", times=1, user="bob")
    recorded.cancel("Conflict", times=1, user=None, caller="system:serviceaccount:redbox-system:operator")
    assert len(recorded.entries) == 5


def test_the_budget_comes_back() -> None:
    recorded = Recorded()
    recorded.cancel("Conflict", times=50)
    recorded.clock.pass_s(1)
    recorded.cancel("Conflict", times=50)
    assert len(recorded.entries) == 6


def test_strangers_have_one_budget_whatever_they_call_themselves() -> None:
    recorded = Recorded()
    for number in range(50):
        recorded.audit(AuditEntry(f"system:serviceaccount:x:{number}", None, "enter", "", "NotMapped"))
    recorded.audit.report()
    assert len(recorded.entries) == 4
    assert recorded.entries[-1].detail.startswith("47 lines")
