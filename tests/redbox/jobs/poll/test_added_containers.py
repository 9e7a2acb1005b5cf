"""A container that is added to a pod whose report was settled."""

from __future__ import annotations

import pytest

from redbox.core.domain import JobKey
from tests.redbox.jobs.harness import World, caller
from tests.redbox.jobs.poll.test_pod_reports import RUNNING, Pods, report, states_of


@pytest.fixture
def pods(world: World) -> Pods:
    return Pods(world)


def test_a_settled_report_is_read_again_once_a_container_was_added(pods: Pods) -> None:
    pods.start()
    pods.says(report(RUNNING, settled=True))
    pods.world.advance(3)
    assert pods.reads(600) == 0
    key = JobKey(caller().owner, pods.get().key, 1)
    added = {"waiting": {"reason": "ContainerCreating"}}
    pods.says(report(RUNNING, added))
    pods.world.run(pods.world.jobs.expect_report(key))
    pods.world.advance(2)
    assert states_of(pods.get()) == ["running", "waiting"]
    pods.says(report(RUNNING, added, settled=True))
    pods.world.advance(3)
    assert pods.reads(600) == 0


def test_a_job_that_is_gone_is_not_followed(pods: Pods) -> None:
    pods.world.run(pods.world.jobs.expect_report(JobKey(caller().owner, "never-there", 1)))
    assert pods.reads(60) == 0
