"""Which pod is trusted as a companion, and the next step for it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from redbox_clusters.node_labels import Limit, fit_terms
from redbox_operator.api.constants import ANNOTATION_REACHES
from redbox_operator.api.slurmjob_status import CompanionStatus
from redbox_operator.companion_pods.plan import Plan, Step, companion_of, plan_for, replaced
from tests.operator.factories import NOON

RECORDED = CompanionStatus(name="cow-job", uid="pod-uid", attempt=1)
FINAL = json.dumps({"final": True, "logs": "complete", "results": {"outcome": "Collected", "files": 2}})


def pod(uid: str = "pod-uid", owner: str | None = "0aa6-11", **status: Any) -> dict[str, Any]:
    owners = [{"uid": owner, "controller": True}] if owner else []
    metadata = {"namespace": "farm", "name": "cow-job", "uid": uid, "ownerReferences": owners}
    return {"metadata": metadata, "status": status}


def ended(message: str, **metadata: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 1, "message": message}}
    made = pod(phase="Failed", containerStatuses=[{"state": state}])
    made["metadata"] |= metadata
    return made


def reaching(digest: str) -> dict[str, Any]:
    made = pod(phase="Running")
    made["metadata"]["annotations"] = {ANNOTATION_REACHES: digest}
    return made


def terminating(dead_at: str) -> dict[str, Any]:
    made = pod(phase="Running")
    made["metadata"]["deletionTimestamp"] = dead_at
    return made


@pytest.mark.parametrize(
    ("recorded", "there", "step"),
    [
        (None, None, Step.MAKE),
        (RECORDED, None, Step.MAKE),
        (RECORDED, pod(phase="Running"), Step.KEEP),
        (RECORDED, reaching("here"), Step.KEEP),
        (RECORDED, reaching("where red-box was"), Step.DELETE),
        (RECORDED, ended(FINAL), Step.RECORD_FINAL_MESSAGE),
        (RECORDED, ended('{"refused": "no mapping"}'), Step.RECORD_FINAL_MESSAGE),
        (RECORDED, ended(""), Step.DELETE),
        (RECORDED, ended('["final"]'), Step.DELETE),
        (RECORDED, ended("[" * 4096), Step.DELETE),
        (RECORDED, ended('{"final": "yes"}'), Step.DELETE),
        (RECORDED, pod(uid="other"), Step.DELETE),
        (None, pod(uid="made before a crash"), Step.DELETE),
        (None, pod(owner=None), Step.FOREIGN),
        (RECORDED, pod(uid="other", owner="somebody else"), Step.FOREIGN),
        (RECORDED, terminating("2026-11-21T11:59:45+00:00"), Step.KEEP),
        (RECORDED, terminating("2026-11-21T11:59:20+00:00"), Step.FORCE),
        (RECORDED.model_copy(update={"done": True}), None, Step.KEEP),
        (RECORDED.model_copy(update={"done": True}), ended(""), Step.KEEP),
    ],
)
def test_the_next_step(recorded: CompanionStatus | None, there: dict[str, Any] | None, step: Step) -> None:
    shown = companion_of(there) if there else None
    assert plan_for(recorded, shown, "0aa6-11", "here", NOON).step is step


@pytest.mark.parametrize(
    ("count", "seconds_ago", "plan"),
    [
        (1, 0, Plan(Step.KEEP, 1.0)),
        (1, 1, Plan(Step.MAKE)),
        (4, 5, Plan(Step.KEEP, 3.0)),
        (9, 256, Plan(Step.MAKE)),
        (10, 600, Plan(Step.GIVEN_UP, 3000.0)),
        (10, 3600, Plan(Step.MAKE)),
        (10, -86_400, Plan(Step.MAKE)),  # the clock was set back
    ],
)
def test_one_that_keeps_failing_is_made_ever_later_and_ten_times_an_hour(
    count: int, seconds_ago: int, plan: Plan
) -> None:
    recorded = RECORDED.model_copy(
        update={"replaced": count, "replaced_at": NOON - timedelta(seconds=seconds_ago)}
    )
    assert plan_for(recorded, None, "0aa6-11", "here", NOON) == plan


def test_an_hour_of_calm_begins_the_count_anew() -> None:
    assert replaced(None, NOON) == (None, None)
    assert replaced(RECORDED, NOON) == (1, NOON)
    lately = RECORDED.model_copy(update={"replaced": 3, "replaced_at": NOON - timedelta(minutes=5)})
    assert replaced(lately, NOON) == (4, NOON)
    long_ago = RECORDED.model_copy(update={"replaced": 9, "replaced_at": NOON - timedelta(hours=2)})
    assert replaced(long_ago, NOON) == (1, NOON)


def test_what_became_of_results_is_in_the_final_message() -> None:
    word = companion_of(ended(FINAL)).final_message
    assert word is not None
    assert word.results is not None
    assert (word.results.outcome, word.results.files) == ("Collected", 2)


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        (
            {
                "containerStatuses": [
                    {
                        "state": {
                            "waiting": {
                                "reason": "CreateContainerConfigError",
                                "message": 'secret "s" not found',
                            }
                        }
                    }
                ]
            },
            "CompanionNotStarted",
            'secret "s" not found',
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            "CompanionImage",
            "administrator",
        ),
        (
            {"conditions": [{"reason": "Unschedulable", "message": 'persistentvolumeclaim "c" not found'}]},
            "Unschedulable",
            "Create the claim that results.volume names",
        ),
        (
            {"conditions": [{"reason": "Unschedulable", "message": "0/2 nodes are available"}]},
            "Unschedulable",
            "0/2 nodes",
        ),
    ],
)
def test_a_pod_that_cannot_start_says_what_is_missing(status: Any, reason: str, says: str) -> None:
    trouble = companion_of(pod(phase="Pending", **status)).problem
    assert trouble is not None
    assert trouble.reason == reason
    assert says in trouble.message


def test_a_pod_that_no_node_takes_says_what_it_asks_of_one() -> None:
    terms = fit_terms({Limit.TIME_S: 39600}, "debug", "hpc1")
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    raw = pod(phase="Pending", conditions=[{"reason": "Unschedulable", "message": "0/2 nodes"}])
    raw["spec"] = {
        "nodeSelector": {"redbox.dev/partition": "debug"},
        "affinity": {"nodeAffinity": required},
    }
    trouble = companion_of(raw).problem
    assert trouble is not None
    assert trouble.message == (
        "no Kubernetes node accepts the job's pod. It needs a node with redbox.dev/partition=debug, "
        "debug.hpc1.redbox.dev/max-time-s of 39600 or more (or none): compare with `kubectl describe node`. "
        "The scheduler reports: 0/2 nodes"
    )


def test_what_is_kept_of_a_pod_is_bounded_whatever_its_author_wrote() -> None:
    """Anybody who may create pods can give them our label."""
    long = "x" * 300_000
    made = pod(
        owner=long,
        phase="Pending",
        conditions=[{"reason": "Unschedulable", "message": "0/3 nodes are available"}],
        containerStatuses=[{"state": {"terminated": {"message": json.dumps({"refused": long})}}}],
    )
    made["metadata"]["annotations"] = {ANNOTATION_REACHES: long}
    made["spec"] = {"nodeSelector": {f"label-{number}": "y" * 63 for number in range(10_000)}}
    assert len(repr(companion_of(made))) < 10_000
