"""Companions, as far as the operator needs to know them, and what has to be done about one. Pure.

Phase and exit code of a job come from red-box alone, never from the pod. A companion is the pod whose uid the
operator wrote to the status: name, labels and ownerReference prove nothing. It has done its work when it has
said a last word; one that ended without is deleted and made again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

from pydantic import ValidationError

from redbox_kube.names import LABEL_ATTEMPT, LABEL_JOB_UID
from redbox_kube.node_labels import described_needs
from redbox_operator.api.constants import ANNOTATION_REACHES
from redbox_operator.api.problems import StatusProblem
from redbox_operator.api.slurmjob_status import CompanionStatus, ResultsStatus

Object = dict[str, Any]
FORCED_AFTER_S = 30
MOST_REPLACED = 10
CALM_S = 3600.0
FIRST_PAUSE_S = 1.0

IMAGE_TROUBLES = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
CURE_OF_CLAIM = (
    ". Create the claim that results.volume names, or see why it is not bound: it goes on by itself"
)
CONFIG_TROUBLES = frozenset({"CreateContainerConfigError", "CreateContainerError"})


@dataclass(frozen=True, slots=True)
class FinalMessage:
    """What a companion that has done its work leaves as its termination message."""

    refused: str | None = None
    results: ResultsStatus | None = None


@dataclass(frozen=True, slots=True)
class CompanionPod:
    """A pod of a job, without what nobody here reads."""

    namespace: str
    name: str
    uid: str
    version: str
    job_uid: str  # as its label says, so that somebody looks at it
    owner_uid: str | None  # of the object that controls it
    attempt: str
    reaches: str = ""  # which red-box, where it was told
    dead_at: datetime | None = None  # when its grace is over, if it is being deleted
    ended: bool = False
    last_word: FinalMessage | None = None
    trouble: StatusProblem | None = None


class Step(Enum):
    """What has to be done about a companion."""

    KEEP = auto()
    MAKE = auto()
    DELETE = auto()
    FORCE = auto()  # delete one whose node does not answer
    NOTE_LAST_WORD = auto()
    FOREIGN = auto()  # somebody else's pod has the name
    GIVEN_UP = auto()


@dataclass(frozen=True, slots=True)
class Plan:
    """The step, and when to look again, if not only after the next change."""

    step: Step
    again_in_s: float | None = None


def plan_for(
    recorded: CompanionStatus | None, pod: CompanionPod | None, job_uid: str, reaches: str, now: datetime
) -> Plan:
    """The next step towards one companion that says its last word; it has to reach red-box as it is now."""
    if recorded is not None and recorded.done:
        return Plan(Step.KEEP)
    if pod is None:
        return _to_be_made(recorded, now)
    if pod.dead_at is not None:
        return _to_be_gone(pod.dead_at, now)
    if recorded is None or pod.uid != recorded.uid:
        # Ours, if it says so itself: made before a crash, and its uid never written. It is not believed.
        return Plan(Step.DELETE if pod.owner_uid == job_uid else Step.FOREIGN)
    if not pod.ended:
        return _while_it_runs(pod, reaches)
    return Plan(Step.NOTE_LAST_WORD if pod.last_word else Step.DELETE)


def plan_for_auxiliary(
    recorded: CompanionStatus, pod: CompanionPod | None, job_uid: str, reaches: str, now: datetime
) -> Plan:
    """The same for a pod beside the companion. Its losses count as the companion's; two do no harm."""
    if pod is None:
        return _to_be_made(recorded, now)
    if pod.dead_at is not None:
        return _to_be_gone(pod.dead_at, now)
    if pod.owner_uid != job_uid:
        return Plan(Step.FOREIGN)
    if not pod.ended:
        return _while_it_runs(pod, reaches)
    return Plan(Step.KEEP if pod.last_word else Step.DELETE)


def _while_it_runs(pod: CompanionPod, reaches: str) -> Plan:
    """One that asks where red-box was, or trusts what it was, would ask for ever."""
    return Plan(Step.KEEP if pod.reaches in {"", reaches} else Step.DELETE)


def _to_be_gone(dead_at: datetime, now: datetime) -> Plan:
    overdue = (now - dead_at).total_seconds() - FORCED_AFTER_S
    return Plan(Step.FORCE, 5.0) if overdue >= 0 else Plan(Step.KEEP, 1.0 - overdue)


def _to_be_made(recorded: CompanionStatus | None, now: datetime) -> Plan:
    if recorded is None or not recorded.uid or not recorded.replaced or recorded.replaced_at is None:
        return Plan(Step.MAKE)
    since = (now - recorded.replaced_at).total_seconds()
    if since >= CALM_S:
        return Plan(Step.MAKE)
    if recorded.replaced >= MOST_REPLACED:
        return Plan(Step.GIVEN_UP, CALM_S - since)
    pause = FIRST_PAUSE_S * 2.0 ** (recorded.replaced - 1)
    return Plan(Step.MAKE) if since >= pause else Plan(Step.KEEP, pause - since)


def replaced(recorded: CompanionStatus | None, now: datetime) -> tuple[int | None, datetime | None]:
    """The count of replacements once one more is made; an hour of calm begins it anew."""
    if recorded is None or not recorded.uid:
        return None, None
    calm = recorded.replaced_at is None or now - recorded.replaced_at >= timedelta(seconds=CALM_S)
    return (1 if calm else (recorded.replaced or 0) + 1), now


def companion_of(pod: Object) -> CompanionPod:
    """What counts of a pod."""
    metadata, status = pod["metadata"], pod.get("status", {})
    labels = metadata.get("labels", {})
    owners = metadata.get("ownerReferences", [])
    return CompanionPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata.get("resourceVersion", ""),
        job_uid=labels.get(LABEL_JOB_UID, ""),
        owner_uid=next((owner["uid"] for owner in owners if owner.get("controller")), None),
        attempt=labels.get(LABEL_ATTEMPT, ""),
        reaches=sys.intern(metadata.get("annotations", {}).get(ANNOTATION_REACHES, "")),
        dead_at=_time(metadata.get("deletionTimestamp")),
        ended=status.get("phase") in {"Succeeded", "Failed"},
        last_word=_last_word(status),
        trouble=_trouble(pod.get("spec", {}), status),
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _last_word(status: Object) -> FinalMessage | None:
    for container in status.get("containerStatuses") or []:
        terminated = container.get("state", {}).get("terminated") or {}
        try:
            said = json.loads(terminated.get("message") or "")
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and ("refused" in said or said.get("final") is True):
            refused = said.get("refused")
            return FinalMessage(str(refused) if refused else None, _results(said.get("results")))
    return None


def _results(said: object) -> ResultsStatus | None:
    try:
        return ResultsStatus.model_validate(said) if isinstance(said, dict) else None
    except ValidationError:
        return None


def _trouble(spec: Object, status: Object) -> StatusProblem | None:
    for container in status.get("containerStatuses") or []:
        waiting = container.get("state", {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in CONFIG_TROUBLES:
            return StatusProblem(
                "CompanionNotStarted",
                f"the job's pod cannot start: {message}. Create what is missing, and it goes on by itself",
            )
        if reason in IMAGE_TROUBLES:
            return StatusProblem(
                "CompanionImage",
                f"the companion's image cannot be had: {message or reason}. The cluster's administrator has "
                "to mend this",
            )
    for condition in status.get("conditions") or []:
        if condition.get("reason") == "Unschedulable":
            return StatusProblem("Unschedulable", _why_unscheduled(spec, condition.get("message", "")))
    return None


def _why_unscheduled(spec: Object, said: str) -> str:
    """The scheduler tells how many nodes it looked at, and never what the pod asked of them."""
    told = f"The scheduler says: {said}"
    if "persistentvolumeclaim" in said.lower():
        told += CURE_OF_CLAIM
    elif wanted := _wanted(spec):
        told = f"It needs one with {', '.join(wanted)}: compare with `kubectl describe node`. {told}"
    return f"no node of Kubernetes takes the job's pod. {told}"


def _wanted(spec: Object) -> list[str]:
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    labels = [f"{key}={value}" for key, value in spec.get("nodeSelector", {}).items()]
    return labels + described_needs(required.get("nodeSelectorTerms", []))
