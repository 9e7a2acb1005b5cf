"""Which file `kubectl logs` reads: of which container and start; and what it says where there is none."""

from __future__ import annotations

from typing import Any, cast

import pytest

from redbox_api.client import RedboxClient
from redbox_api.models import Phase
from redbox_resourced.kubelet.logs.container_log import one_stream, requested_start
from redbox_resourced.kubelet.logs.query import LogRequest
from redbox_resourced.kubelet.logs.streams import JobStreams
from redbox_resourced.kubelet.rejection import RequestRejected
from tests.resourced.pods.factories import RUNS, WAITS, died, pod_job, report, running_pod

INIT: dict[str, Any] = {"initContainers": [{"name": "setup", "image": "i"}]}
AGAIN = {"state": RUNS, "lastState": died(1), "restartCount": 3}
BACKS_OFF = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": died(1), "restartCount": 3}
ENDED_AGAIN = {"state": died(0), "lastState": died(1), "restartCount": 3}


@pytest.mark.parametrize(
    ("reported", "restart", "previous"),
    [(AGAIN, 3, 2), (BACKS_OFF, 3, 3), (ENDED_AGAIN, 3, 2)],
)
def test_the_log_is_of_the_newest_start_and_previous_of_the_last_end(
    reported: dict[str, Any], restart: int, previous: int
) -> None:
    job = pod_job(pod=report(main=reported))
    assert requested_start(running_pod(), "main", job, LogRequest()).restart == restart
    assert requested_start(running_pod(), "main", job, LogRequest(previous=True)).restart == previous


def test_an_init_container_has_a_log_of_its_own() -> None:
    job = pod_job(pod=report(setup=died(0), main=RUNS))
    start = requested_start(running_pod(**INIT), "setup", job, LogRequest())
    assert (start.container, start.restart) == ("setup", 0)
    assert start.times.ended_at is not None


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (WAITS, "ContainerCreating"),
        ({"waiting": {"reason": "ErrImagePull"}}, "image can't be pulled"),
        ({"waiting": {"reason": "ImagePullBackOff"}}, "trying and failing to pull image"),
    ],
)
def test_a_container_that_waits_is_answered_as_a_kubelet_does(state: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestRejected) as rejected:
        requested_start(running_pod(), "main", pod_job(pod=report(main=state)), LogRequest())
    assert str(rejected.value) == f'container "main" in pod "train" is waiting to start: {why}'
    assert rejected.value.status == 400


@pytest.mark.parametrize(("spec", "why"), [({}, "ContainerCreating"), (INIT, "PodInitializing")])
def test_so_is_one_whose_job_does_not_run_yet(spec: dict[str, Any], why: str) -> None:
    for job in (None, pod_job(Phase.PENDING)):
        with pytest.raises(RequestRejected, match=f"waiting to start: {why}$"):
            requested_start(running_pod(**spec), "main", job, LogRequest())


def test_one_that_its_pods_end_left_without_a_start_is_not_said_to_wait() -> None:
    with pytest.raises(RequestRejected, match=r"is terminated: it never started$"):
        requested_start(running_pod(), "main", pod_job(Phase.CANCELLED), LogRequest())


def test_without_a_previous_start_there_is_no_previous_log() -> None:
    with pytest.raises(RequestRejected) as rejected:
        requested_start(running_pod(), "main", pod_job(pod=report(main=RUNS)), LogRequest(previous=True))
    assert str(rejected.value) == 'previous terminated container "main" in pod "train" not found'


def test_a_container_that_slurm_killed_still_has_its_log() -> None:
    job = pod_job(Phase.FAILED, report(main={"state": RUNS, "restartCount": 1}), state="TIMEOUT")
    assert requested_start(running_pod("Running"), "main", job, LogRequest()).restart == 1


def test_both_streams_are_one() -> None:
    assert one_stream(LogRequest()).streams == ("stdout",)
    with pytest.raises(RequestRejected, match="one log"):
        one_stream(LogRequest(streams=("stderr",)))


def test_red_box_is_asked_for_that_start_of_that_container() -> None:
    asked = (
        JobStreams(cast("RedboxClient", None), "pod-uid", 1, "main", 0).cursor("stdout").query.parameters()
    )
    assert (asked["container"], asked["restart"]) == ("main", 0)
    of_companion = JobStreams(cast("RedboxClient", None), "job-uid", 1).cursor("stdout").query.parameters()
    assert not of_companion.keys() & {"container", "restart"}
