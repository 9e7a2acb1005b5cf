"""When all pods of a Deployment or a StatefulSet are of its newest template."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.controllers.rollouts import is_rolled_out

DONE = {"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (DONE, True),
        (DONE | {"observedGeneration": 1}, False),
        (DONE | {"updatedReplicas": 0}, False),
        (DONE | {"readyReplicas": 0}, False),
        ({}, False),
    ],
)
def test_a_rollout_ends_with_the_last_pod_of_the_newest_template(
    status: dict[str, Any], *, expected: bool
) -> None:
    body = {"metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": status}
    assert is_rolled_out(body) is expected


def test_what_does_not_exist_is_not_rolled_out() -> None:
    assert not is_rolled_out(None)
