"""One SlurmJob as it is looked at, and what its row means for what was announced. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from redbox_api.models import Job, Phase
from redbox_operator.api.constants import PodRole
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import ConditionType, SlurmJobStatus
from redbox_operator.companion.builder import needs_collector, needs_submitter
from redbox_operator.object_cache import CachedJob
from redbox_operator.slurmcluster.job_feed import RedboxLink, RowKey
from redbox_operator.slurmjob import attempts
from redbox_operator.slurmjob.attempts import Attempt
from redbox_operator.slurmjob.status import HoldState

HELD_BY_USER = "JobHeldUser"
HELD_BY_SLURM = frozenset({HELD_BY_USER, "JobHeldAdmin"})


@dataclass(frozen=True, slots=True)
class AttemptState:
    """One SlurmJob as it is looked at: what is known of its newest attempt."""

    known: CachedJob
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


def auxiliary_role(case: AttemptState) -> PodRole | None:
    """Of the pod beside the companion, made with it or at the end, that has not done its work yet."""
    before, link = case.before, case.link
    if link is None or before.companion is None or not case.same_attempt:
        return None
    if before.finished:
        waits = bool(before.job_id) and before.results is None
        return PodRole.COLLECT if waits and needs_collector(case.job, link.cluster) else None
    unsubmitted = case.row is None and before.job_id is None
    return PodRole.SUBMIT if unsubmitted and needs_submitter(case.job, link.cluster) else None


def hold_state_of(case: AttemptState) -> HoldState | None:
    """What Slurm is asked: to hold the job, to release it, or nothing. A release is asked for once."""
    spec, row = case.job.spec, case.row
    said = case.before.condition(ConditionType.HELD) if case.same_attempt else None
    if row is None and case.before.finished:
        return HoldState(said.reason) if said else None
    waits = row is None or row.phase in {Phase.PENDING, Phase.SUBMITTING}
    if (spec.suspend or spec.hold) and waits:
        return HoldState.HELD
    if said is None:
        return None
    asked = said.reason in {HoldState.HELD, HoldState.RELEASING}
    still_held = row is None or (row.phase is Phase.PENDING and row.reason in {None, HELD_BY_USER})
    return HoldState.RELEASING if asked and still_held else HoldState.RELEASED


def pending_action(row: Job, status: SlurmJobStatus) -> str | None:
    """What the status has announced and Slurm has not done yet."""
    said = status.condition(ConditionType.HELD)
    if row.phase is not Phase.PENDING or said is None:
        return None
    if said.reason == HoldState.HELD and row.reason not in HELD_BY_SLURM:
        return "hold"
    return "release" if said.reason == HoldState.RELEASING and row.reason == HELD_BY_USER else None


def is_recorded(status: SlurmJobStatus, row: Job) -> bool:
    """Whether the status has all that the row of an ended job says."""
    return (status.job_id, status.state, status.exit_code) == (row.job_id, row.state, row.exit_code)
