"""Why a pod does not start."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.controllers.unstarted_pods import why_not_started

UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
SCHEDULED = {"type": "PodScheduled", "status": "True"}


def pod(state: dict[str, Any], *conditions: dict[str, Any], name: str = "slurmd") -> dict[str, Any]:
    return {"status": {"containerStatuses": [{"name": name, "state": state}], "conditions": [*conditions]}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, ""),
        ({"status": {}}, ""),
        (pod({"running": {}}, SCHEDULED), ""),
        (pod(waiting("ContainerCreating"), SCHEDULED), ""),
        (pod(waiting("PodInitializing")), ""),
        (pod({}, UNSCHEDULED), "Unschedulable: no room"),
        (pod(waiting("ImagePullBackOff", "no such image"), SCHEDULED), "ImagePullBackOff: no such image"),
        (pod(waiting("ErrImagePull")), "ErrImagePull"),
        (pod(waiting("ErrImagePull"), name="sidecar"), ""),
        (pod(waiting("ErrImagePull", "a\x1b[31m")), "ErrImagePull: a?[31m"),
        (pod(waiting("ErrImagePull", "x" * 9000)), f"ErrImagePull: {'x' * 286}"),
    ],
)
def test_the_words_are_those_of_kubernetes(body: dict[str, Any], why: str) -> None:
    assert why_not_started(body, "slurmd") == why
