"""Companion pods as the operator reads them, and the next step for one. Pure.

Phase and exit code of a job come from red-box alone, never from the pod. A companion is the pod whose uid the
operator wrote to the status: name, labels and ownerReference can be forged. It has finished its work when it
has left its final message; one that ended without a final message is deleted and created again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from pydantic import ValidationError

from redbox_clusters.names import LABEL_ATTEMPT, LABEL_JOB_UID
from redbox_clusters.node_labels import described_needs
from redbox_kube.status.problems import StatusProblem
from redbox_operator.api.constants import ANNOTATION_REACHES
from redbox_operator.api.slurmjob_status import CompanionStatus, ResultsStatus
from redbox_shared.backoff import Backoff

Object = dict[str, Any]
FORCED_AFTER_S = 30
FORCED_AGAIN_S = (5.0, 60.0)
"""At first, and in the end: what keeps a pod's finalizer may keep it for ever."""
MAX_REPLACED = 10
STABLE_S = 3600.0
BACKOFF = Backoff(1.0, STABLE_S, jitter=0.0)

LONGEST_ID = 128
LONGEST_MESSAGE = 4096
"""Anybody who creates pods may put our label on pods of a megabyte: what is kept of one is bounded."""
IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
CLAIM_HINT = (
    ". Create the claim that results.volume names, or find out why it is not bound: then this goes on"
)
UNKNOWN_FIELD = "is not a field of this request"
CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError"})


@dataclass(frozen=True, slots=True)
class FinalMessage:
    """The termination message of a companion that has finished its work."""

    refused: str | None = None
    results: ResultsStatus | None = None

    @property
    def refusal(self) -> StatusProblem | None:
        """Why red-box does not take the job. The operator sends no field that its own release lacks."""
        if not self.refused:
            return None
        if UNKNOWN_FIELD in self.refused:
            cure = "leave the field out in a new SlurmJob, or ask the HPC administrator to upgrade red-box"
            message = f"red-box is older than the operator ({self.refused}): {cure}"
            return StatusProblem("RedboxTooOld", message, final=True)
        return StatusProblem("Refused", self.refused, final=True)


@dataclass(frozen=True, slots=True)
class CompanionPod:
    """A pod of a job, with the fields that the operator reads."""

    namespace: str
    name: str
    uid: str
    version: str
    job_uid: str  # of its label, which only selects the SlurmJob to reconcile
    owner_uid: str | None  # of the object that controls it
    attempt: str
    reaches: str = ""  # digest of the red-box that it connects to
    dead_at: datetime | None = None  # end of its grace period, if it is being deleted
    ended: bool = False
    final_message: FinalMessage | None = None
    problem: StatusProblem | None = None

    @property
    def is_virtual(self) -> bool:
        """Whether it has no container that connects to red-box."""
        return not self.reaches


class Step(Enum):
    """The next step for a companion."""

    KEEP = auto()
    MAKE = auto()
    DELETE = auto()
    FORCE = auto()  # delete a pod whose node does not answer
    RECORD_FINAL_MESSAGE = auto()
    FOREIGN = auto()  # another owner's pod has the name
    GIVEN_UP = auto()


@dataclass(frozen=True, slots=True)
class Plan:
    """The step, and seconds after which the next one is due without any change."""

    step: Step
    requeue_after_s: float | None = None


def plan_for(
    recorded: CompanionStatus | None,
    pod: CompanionPod | None,
    job_uid: str,
    reaches: str,
    now: datetime,
    *,
    job_has_ended: bool = False,
) -> Plan:
    """The next step towards a final message; the companion has to reach red-box at its current address.

    On a virtual node it has no log to relay: its message is the end of the job, and need not be waited for.
    """
    if recorded is not None and recorded.done:
        return Plan(Step.KEEP)
    if pod is None:
        return _when_missing(recorded, now)
    if pod.dead_at is not None:
        return _while_deleted(pod.dead_at, now)
    if recorded is None or pod.uid != recorded.uid:
        # Ours by its ownerReference: created before a crash, and its uid never recorded. It is not trusted.
        return Plan(Step.DELETE if pod.owner_uid == job_uid else Step.FOREIGN)
    if not pod.ended:
        is_over = job_has_ended and pod.is_virtual
        return Plan(Step.RECORD_FINAL_MESSAGE) if is_over else _while_it_runs(pod, reaches)
    return Plan(Step.RECORD_FINAL_MESSAGE if pod.final_message else Step.DELETE)


def plan_for_auxiliary(
    recorded: CompanionStatus | None, pod: CompanionPod | None, job_uid: str, reaches: str, now: datetime
) -> Plan:
    """The same for a pod beside the companion. Its replacements count as the companion's; two do no harm."""
    if pod is None:
        return _when_missing(recorded, now)
    if pod.dead_at is not None:
        return _while_deleted(pod.dead_at, now)
    if pod.owner_uid != job_uid:
        return Plan(Step.FOREIGN)
    if not pod.ended:
        return _while_it_runs(pod, reaches)
    return Plan(Step.KEEP if pod.final_message else Step.DELETE)


def _while_it_runs(pod: CompanionPod, reaches: str) -> Plan:
    """A pod with an old address or CA of red-box would retry forever."""
    return Plan(Step.KEEP if pod.reaches in {"", reaches} else Step.DELETE)


def _while_deleted(dead_at: datetime, now: datetime) -> Plan:
    overdue = (now - dead_at).total_seconds() - FORCED_AFTER_S
    if overdue < 0:
        return Plan(Step.KEEP, 1.0 - overdue)
    return Plan(Step.FORCE, min(FORCED_AGAIN_S[1], max(FORCED_AGAIN_S[0], overdue / 10)))


def _when_missing(recorded: CompanionStatus | None, now: datetime) -> Plan:
    if recorded is None or not recorded.uid or not recorded.replaced or recorded.replaced_at is None:
        return Plan(Step.MAKE)
    since = (now - recorded.replaced_at).total_seconds()
    if since >= STABLE_S or since < 0:  # the clock was set back
        return Plan(Step.MAKE)
    if recorded.replaced >= MAX_REPLACED:
        return Plan(Step.GIVEN_UP, STABLE_S - since)
    pause = BACKOFF.pause_s(recorded.replaced)
    return Plan(Step.MAKE) if since >= pause else Plan(Step.KEEP, pause - since)


def replaced(recorded: CompanionStatus | None, now: datetime) -> tuple[int | None, datetime | None]:
    """The count and time of replacements after one more; a stable hour resets the count."""
    if recorded is None or not recorded.uid:
        return None, None
    stable = recorded.replaced_at is None or now - recorded.replaced_at >= timedelta(seconds=STABLE_S)
    return (1 if stable else (recorded.replaced or 0) + 1), now


def companion_of(pod: Object) -> CompanionPod:
    metadata, status = pod["metadata"], pod.get("status", {})
    labels = metadata.get("labels", {})
    owners = metadata.get("ownerReferences", [])
    return CompanionPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata.get("resourceVersion", ""),
        job_uid=labels.get(LABEL_JOB_UID, ""),
        owner_uid=next((owner["uid"][:LONGEST_ID] for owner in owners if owner.get("controller")), None),
        attempt=labels.get(LABEL_ATTEMPT, ""),
        reaches=sys.intern(metadata.get("annotations", {}).get(ANNOTATION_REACHES, "")[:LONGEST_ID]),
        dead_at=_time(metadata.get("deletionTimestamp")),
        ended=status.get("phase") in {"Succeeded", "Failed"},
        final_message=_final_message(status),
        problem=_bounded(_problem(pod.get("spec", {}), status)),
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _final_message(status: Object) -> FinalMessage | None:
    for container in status.get("containerStatuses") or []:
        terminated = container.get("state", {}).get("terminated") or {}
        try:
            message = json.loads((terminated.get("message") or "")[:LONGEST_MESSAGE])
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict) and ("refused" in message or message.get("final") is True):
            refused = message.get("refused")
            return FinalMessage(str(refused) if refused else None, _results(message.get("results")))
    return None


def _results(results: object) -> ResultsStatus | None:
    try:
        return ResultsStatus.model_validate(results) if isinstance(results, dict) else None
    except ValidationError:
        return None


def _bounded(problem: StatusProblem | None) -> StatusProblem | None:
    return problem and replace(problem, message=problem.message[:LONGEST_MESSAGE])


def _problem(spec: Object, status: Object) -> StatusProblem | None:
    for container in status.get("containerStatuses") or []:
        waiting = container.get("state", {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in CONFIG_REASONS:
            return StatusProblem(
                "CompanionNotStarted",
                f"the job's pod cannot start: {message}. Create the missing object; the job then continues",
            )
        if reason in IMAGE_REASONS:
            return StatusProblem(
                "CompanionImage",
                f"the companion image cannot be pulled: {message or reason}. Ask the cluster's administrator "
                "to fix this",
            )
    for condition in status.get("conditions") or []:
        if condition.get("reason") == "Unschedulable":
            return StatusProblem("Unschedulable", _why_unscheduled(spec, condition.get("message", "")))
    return None


def _why_unscheduled(spec: Object, message: str) -> str:
    """The scheduler reports how many nodes it considered, and never what the pod requires."""
    detail = f"The scheduler reports: {message}"
    if "persistentvolumeclaim" in message.lower():
        detail += CLAIM_HINT
    elif required := _required_labels(spec):
        labels = ", ".join(required)
        detail = f"It needs a node with {labels}: compare with `kubectl describe node`. {detail}"
    return f"no Kubernetes node accepts the job's pod. {detail}"


def _required_labels(spec: Object) -> list[str]:
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    labels = [f"{key}={value}" for key, value in spec.get("nodeSelector", {}).items()]
    return labels + described_needs(required.get("nodeSelectorTerms", []))
