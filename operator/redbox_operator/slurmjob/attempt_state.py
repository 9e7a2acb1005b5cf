"""The newest attempt of a SlurmJob as one reconciliation sees it, and what follows from its row. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from redbox_api.feed import RowKey
from redbox_api.models import Job, Phase
from redbox_operator.api.constants import PodRole, pod_name
from redbox_operator.api.slurmjob import SlurmJob, awaits_pods
from redbox_operator.api.slurmjob_status import ConditionType, SlurmJobStatus
from redbox_operator.companion_pods.builder import needs_helper, needs_submitter
from redbox_operator.companion_pods.lifecycle import CompanionState
from redbox_operator.companion_pods.plan import CompanionPod, FinalMessage
from redbox_operator.object_cache import PodName
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmjob import attempts
from redbox_operator.slurmjob.attempts import Attempt, CancelState, HoldState
from redbox_operator.slurmjob.status import StatusInputs
from redbox_shared import requested_actions
from redbox_shared.wire import HELD_BY_USER, HELD_REASONS

CANCEL_AGAIN_S = 10.0
AWAITS_PODS_S = 5.0
UNREAD_LOG_S = 3600.0
"""A SlurmJob whose log was not read to its end, or results not copied, is deleted this long after its TTL."""


@dataclass(frozen=True, slots=True)
class AttemptState:
    """A SlurmJob, the link to its red-box, and its newest attempt with its row there."""

    job: SlurmJob
    link: RedboxLink | None
    attempt: Attempt
    row: Job | None
    cancel: CancelState | None = None
    unreleased: bool = False  # a release was announced, and red-box has not accepted it
    release_refused: bool = False  # of the run that Slurm holds

    @property
    def before(self) -> SlurmJobStatus:
        """The status before this reconciliation."""
        return self.job.status

    @property
    def row_key(self) -> RowKey:
        job = self.job
        return RowKey(job.uid, self.attempt.number, job.namespace, job.spec.service_account_name)

    @property
    def same_attempt(self) -> bool:
        """Whether the status describes this attempt and not the one before it."""
        return (self.before.attempts or attempts.FIRST) == self.attempt.number


def pod_of(state: AttemptState, role: PodRole, pods: Mapping[PodName, CompanionPod]) -> CompanionPod | None:
    """The attempt's pod of this role, by name; its uid is not checked."""
    return pods.get((state.job.namespace, pod_name(state.job.name, state.attempt.number, role)))


def own_pods(state: AttemptState, pods: Mapping[PodName, CompanionPod]) -> list[CompanionPod]:
    """The attempt's pods of all roles that are the SlurmJob's own."""
    found = (pod_of(state, role, pods) for role in PodRole)
    return [pod for pod in found if pod and pod.owner_uid == state.job.uid]


def never_submitted(state: AttemptState) -> bool:
    """Whether the attempt was cancelled, and Slurm has never had it: its pods have nothing to show."""
    has_row = state.row is not None and state.row.job_id is not None
    return state.cancel is not None and state.cancel.over and not has_row and not state.before.job_id


def auxiliary_role(state: AttemptState) -> PodRole | None:
    """The role of the pod beside the companion that still has work to do, with Virtual delivery."""
    before, link = state.before, state.link
    if link is None or before.companion is None or not state.same_attempt:
        return None
    if before.finished:
        waits = bool(before.job_id) and before.results is None
        return PodRole.HELPER if waits and needs_helper(state.job, link.cluster, job_has_ended=True) else None
    unsubmitted = before.job_id is None and (state.row is None or state.row.phase is Phase.SUBMITTING)
    if unsubmitted and needs_submitter(state.job, link.cluster):
        return PodRole.SUBMIT
    return PodRole.HELPER if needs_helper(state.job, link.cluster, job_has_ended=False) else None


def status_inputs(
    state: AttemptState, companion: CompanionState, pods: Mapping[PodName, CompanionPod], now: datetime
) -> StatusInputs:
    """All that the status is built from: the row, the companion, messages of the attempt's own pods."""
    recorded, pod = companion.recorded, companion.pod
    is_ours = recorded is not None and pod is not None and pod.uid == recorded.uid
    auxiliary = (pod_of(state, role, pods) for role in (PodRole.SUBMIT, PodRole.HELPER))
    own_pods = [
        *([pod] if pod and is_ours else []),
        *(pod for pod in auxiliary if pod and pod.owner_uid == state.job.uid),
    ]
    messages = [pod.final_message for pod in own_pods if pod.final_message]
    refused = next((message.refused for message in messages if message.refused), None)
    results = next((message.results for message in messages if message.results), None)
    cluster, endpoint = recorded_cluster(state)
    return StatusInputs(
        job=state.job,
        before=state.before,
        cluster=cluster,
        endpoint=endpoint,
        attempt=state.attempt,
        row=state.row,
        final_message=FinalMessage(refused, results) if messages else None,
        pod_problem=next((pod.problem for pod in own_pods if pod.problem), None),
        companion=recorded,
        problem=companion.problem,
        now=now,
        hold=hold_state_of(state),
        cancel=state.cancel,
    )


def recorded_cluster(state: AttemptState) -> tuple[str | None, str | None]:
    """The names of the SlurmCluster and of the SlurmEndpoint for the status: one of them at most."""
    if state.link is None:
        return state.before.cluster, state.before.endpoint
    cluster = state.link.cluster
    return (None, cluster.name) if cluster.namespace else (cluster.name, None)


def hold_state_of(state: AttemptState) -> HoldState | None:
    """Whether Slurm holds it by itself, or else what it is asked for."""
    row = state.row
    if row is not None and is_held_by_slurm(state, row):
        is_releasing = is_released(state, row) and not state.release_refused
        return HoldState.RELEASING if is_releasing else HoldState.BY_SLURM
    return requested_hold(state)


def requested_hold(state: AttemptState) -> HoldState | None:
    """What Slurm is asked for: to hold the job, to release it, or nothing. A release is requested once."""
    spec, row = state.job.spec, state.row
    if row is None and state.cancel is not None:
        return None
    held = state.before.condition(ConditionType.HELD) if state.same_attempt else None
    if row is None and state.before.finished:
        return next((hold for hold in HoldState if held and held.reason == hold), None)
    waits = row is None or row.phase in {Phase.PENDING, Phase.SUBMITTING}
    if (spec.suspend or spec.hold) and waits:
        return HoldState.HELD
    if row is not None and waits and row.reason == HELD_BY_USER and _has_unanswered_release(state, row):
        return HoldState.RELEASING
    if held is None or (state.release_refused and row is not None and row.reason == HELD_BY_USER):
        return None
    # A row may be older than the hold: it counts once red-box has accepted the release.
    is_due = held.reason == HoldState.HELD or state.unreleased
    still_held = row is None or (waits and (row.reason in {None, HELD_BY_USER} or is_due))
    by_others = row is not None and row.reason in HELD_REASONS - {HELD_BY_USER}
    requested = held.reason in {HoldState.HELD, HoldState.RELEASING}
    return HoldState.RELEASING if requested and still_held and not by_others else HoldState.RELEASED


def is_held_by_slurm(state: AttemptState, row: Job) -> bool:
    """Whether Slurm holds it after a failed launch, and its SlurmJob lets it start."""
    spec = state.job.spec
    return attempts.is_held_by_slurm(row) and not (spec.suspend or spec.hold or state.cancel)


def is_released(state: AttemptState, row: Job) -> bool:
    """Whether it is released: by an annotation, or as a retry."""
    if asks_release(state, row):
        return True
    return attempts.may_relaunch(state.job.spec, state.before, state.attempt, row)


def _has_unanswered_release(state: AttemptState, row: Job) -> bool:
    """A release is requested once: its user may hold the job again on the login node."""
    if state.release_refused or not asks_release(state, row):
        return False
    held = state.before.condition(ConditionType.HELD) if state.same_attempt else None
    requested = state.job.annotations[requested_actions.RELEASE]
    return held is None or held.reason != HoldState.RELEASED or requested not in held.message


def asks_release(state: AttemptState, row: Job) -> bool:
    """Whether its annotation does, of this run: its script or its user may have held the job in Slurm."""
    requested = state.job.annotations.get(requested_actions.RELEASE, "")
    return row.job_id is not None and requested_actions.asks_for(requested, row.job_id, row.run)


def has_unsent_release(state: AttemptState, status: SlurmJobStatus) -> bool:
    """Whether the status announces the release of a job that, by its row, Slurm may not hold."""
    before, held = state.before.condition(ConditionType.HELD), status.condition(ConditionType.HELD)
    is_announced = before is not None and before.reason == HoldState.HELD
    is_releasing = held is not None and held.reason == HoldState.RELEASING
    has_reason = state.row is not None and state.row.reason is not None
    return is_releasing and has_reason and (is_announced or state.unreleased)


def pending_action(row: Job, status: SlurmJobStatus, *, unreleased: bool = False) -> str | None:
    """The hold or release that the status has announced and Slurm has not done yet."""
    held = status.condition(ConditionType.HELD)
    if held is not None and held.reason == HoldState.RELEASING and attempts.is_held_by_slurm(row):
        return "release"
    if row.phase is not Phase.PENDING or held is None:
        return None
    if held.reason == HoldState.HELD and row.reason not in HELD_REASONS:
        return "hold"
    is_held = row.reason == HELD_BY_USER or unreleased
    return "release" if held.reason == HoldState.RELEASING and is_held else None


def requested_requeue(job: SlurmJob, row: Job) -> str | None:
    """The requeue that the SlurmJob's annotation asks for, while it is about the run that there is."""
    requested = job.annotations.get(requested_actions.REQUEUE)
    runs = row.phase in {Phase.RUNNING, Phase.SUSPENDED} and not job.spec.suspend
    if requested is None or not runs or row.job_id is None:
        return None
    return requested if requested_actions.asks_for(requested, row.job_id, row.run) else None


def requested_task_cancels(job: SlurmJob, row: Job) -> str | None:
    """Likewise of tasks that are to be cancelled, while some of the array wait or run."""
    requested = job.annotations.get(requested_actions.CANCEL_TASKS)
    if requested is None or row.job_id is None or row.array is None:
        return None
    return requested if requested_actions.asks_for(requested, row.job_id, row.run) else None


def cancel_requested(job: SlurmJob) -> bool:
    """Whether the SlurmJob's annotation requests that it is cancelled, and stays."""
    return job.annotations.get(requested_actions.CANCEL) == requested_actions.REQUESTED


def is_recorded(status: SlurmJobStatus, row: Job) -> bool:
    """Whether the status has all that the row of an ended job contains."""
    return (status.job_id, status.state, status.exit_code) == (row.job_id, row.state, row.exit_code)


def next_attempt_in(
    state: AttemptState, status: SlurmJobStatus, now: datetime, at_least_s: float
) -> float | None:
    """A status that was just written causes no event for itself: so its next attempt is timed here."""
    if state.cancel is not None:
        return CANCEL_AGAIN_S if state.cancel.obstacle else None
    due = attempts.next_begins_in(state.job.spec, status, now) if state.link else None
    return None if due is None else max(due, at_least_s)


def expires_in(job: SlurmJob, status: SlurmJobStatus, now: datetime) -> float | None:
    """Seconds until the ended SlurmJob is deleted, once its log has been read and its results copied."""
    ttl = job.spec.ttl_seconds_after_finished
    finished = status.condition(ConditionType.FINISHED)
    if ttl is None or finished is None or not status.finished:
        return None
    left = ttl - (now - finished.last_transition_time).total_seconds()
    if left > 0 or (awaits_pods(job.spec, status) and left >= -UNREAD_LOG_S):
        return max(left, AWAITS_PODS_S)
    return 0.0
