"""One SlurmJob as it is looked at, and what its row means for what was announced. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from redbox_api.feed import RowKey
from redbox_api.models import Job, Phase
from redbox_operator.api.constants import Role
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import ConditionType, SlurmJobStatus
from redbox_operator.companion.builder import needs_collector, needs_submitter
from redbox_operator.object_cache import KnownJob
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmjob import attempts
from redbox_operator.slurmjob.attempts import Attempt
from redbox_operator.slurmjob.status import Holding

HELD_BY_USER = "JobHeldUser"
HELD_BY_SLURM = frozenset({HELD_BY_USER, "JobHeldAdmin"})


@dataclass(frozen=True, slots=True)
class Case:
    """One SlurmJob as it is looked at: what is known of its newest attempt."""

    known: KnownJob
    link: RedboxLink | None
    attempt: Attempt
    row: Job | None

    @property
    def job(self) -> SlurmJob:
        return self.known.job

    @property
    def before(self) -> SlurmJobStatus:
        return self.known.status

    @property
    def row_key(self) -> RowKey:
        job = self.job
        return RowKey(job.uid, self.attempt.number, job.namespace, job.spec.service_account_name)

    @property
    def same_attempt(self) -> bool:
        return (self.before.attempts or attempts.FIRST) == self.attempt.number


def other_role(case: Case) -> Role | None:
    """Of the pod beside the companion, made with it or at the end, that has not done its work yet."""
    before, link = case.before, case.link
    if link is None or before.companion is None or not case.same_attempt:
        return None
    if before.finished:
        waits = bool(before.job_id) and before.results is None
        return Role.COLLECT if waits and needs_collector(case.job, link.cluster) else None
    unsubmitted = case.row is None and before.job_id is None
    return Role.SUBMIT if unsubmitted and needs_submitter(case.job, link.cluster) else None


def holding_of(case: Case) -> Holding | None:
    """What Slurm is asked: to hold the job, to release it, or nothing. A release is asked for once."""
    spec, row = case.job.spec, case.row
    said = case.before.condition(ConditionType.HELD) if case.same_attempt else None
    if row is None and case.before.finished:
        return Holding(said.reason) if said else None
    waits = row is None or row.phase in {Phase.PENDING, Phase.SUBMITTING}
    if (spec.suspend or spec.hold) and waits:
        return Holding.HELD
    if said is None:
        return None
    asked = said.reason in {Holding.HELD, Holding.RELEASING}
    still_held = row is None or (row.phase is Phase.PENDING and row.reason in {None, HELD_BY_USER})
    return Holding.RELEASING if asked and still_held else Holding.RELEASED


def act_on(row: Job, status: SlurmJobStatus) -> str | None:
    """What the status has announced and Slurm has not done yet."""
    said = status.condition(ConditionType.HELD)
    if row.phase is not Phase.PENDING or said is None:
        return None
    if said.reason == Holding.HELD and row.reason not in HELD_BY_SLURM:
        return "hold"
    return "release" if said.reason == Holding.RELEASING and row.reason == HELD_BY_USER else None


def is_told(status: SlurmJobStatus, row: Job) -> bool:
    """Whether the status has all that the row of an ended job says."""
    return (status.job_id, status.state, status.exit_code) == (row.job_id, row.state, row.exit_code)
