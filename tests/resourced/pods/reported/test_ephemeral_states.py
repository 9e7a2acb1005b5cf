"""What a pod's status says of the containers that `kubectl debug` has added."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redbox_api.models import Job, Phase
from redbox_resourced.pods.pod_view import BoundPod, EphemeralProblem, digest_of, read_pod
from redbox_resourced.pods.reported import run_status
from tests.resourced.pods.factories import RUNS, WAITS, died, manifest, pod_job, report, running_pod

DEBUG: dict[str, Any] = {"ephemeralContainers": [{"name": "debugger", "image": "busybox"}]}


def shown(pod: BoundPod, job: Job) -> dict[str, Any]:
    written = run_status.of_job(pod, job)
    assert written is not None
    (row,) = written["ephemeralContainerStatuses"]
    assert (row["name"], row["image"]) == ("debugger", "busybox")
    state: dict[str, Any] = row["state"]
    return state


def with_problem(pod: BoundPod, problem: EphemeralProblem) -> BoundPod:
    assert pod.details is not None
    return replace(pod, details=replace(pod.details, ephemeral_problems={"debugger": problem}))


def test_one_that_runs_or_has_ended_is_shown_as_reported_and_changes_no_phase() -> None:
    pod = running_pod("Running", **DEBUG)
    assert shown(pod, pod_job(pod=report(main=RUNS, debugger=RUNS))) == RUNS
    assert shown(pod, pod_job(pod=report(main=RUNS, debugger=died(3))))["terminated"]["exitCode"] == 3
    main = {"state": RUNS, "ready": True}
    written = run_status.of_job(pod, pod_job(pod=report(main=main, debugger=died(3))))
    assert written is not None
    assert written["phase"] == "Running"
    assert [row["name"] for row in written["containerStatuses"]] == ["main"]
    ready = next(each for each in written["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True"


def test_before_its_start_it_waits_and_says_for_what() -> None:
    pod = running_pod(**DEBUG)
    queued = shown(pod, pod_job(Phase.PENDING))
    assert queued["waiting"]["message"] == "it waits for the pod's job to run"
    problem = EphemeralProblem("CreateContainerConfigError", 'Error: secret "s" not found')
    waits = shown(with_problem(pod, problem), pod_job(pod=report(main=WAITS)))
    assert waits == {"waiting": {"reason": problem.reason, "message": problem.message}}
    status = run_status.waiting(pod, reason="ContainerCreating", message="")
    assert "waiting" in status["ephemeralContainerStatuses"][0]["state"]


def test_one_that_is_refused_has_ended_so_that_kubectl_does_not_wait() -> None:
    pod = with_problem(running_pod(**DEBUG), EphemeralProblem("Unsupported", "no", is_final=True))
    ended = shown(pod, pod_job(pod=report(main=RUNS)))["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (128, "Unsupported", "no")


def test_an_end_that_the_pod_shows_is_kept_since_the_api_server_takes_no_other() -> None:
    pod = with_problem(running_pod(**DEBUG), EphemeralProblem("Unsupported", "no", is_final=True))
    written = run_status.of_job(pod, pod_job(pod=report(main=RUNS)))
    again = read_pod(manifest(written, **DEBUG))  # another resourced, which has tried nothing
    for job in (pod_job(pod=report(main=RUNS)), pod_job(pod=report(main=RUNS, debugger=RUNS))):
        assert shown(again, job) == shown(pod, pod_job(pod=report(main=RUNS)))
    rewritten = run_status.of_job(again, pod_job(pod=report(main=RUNS)))
    assert rewritten is not None
    assert digest_of(rewritten) == again.status_digest


def test_one_that_never_began_has_ended_with_the_pods_job() -> None:
    pod = running_pod("Running", **DEBUG)
    for phase, ends in ((Phase.FAILED, died(1)), (Phase.SUCCEEDED, died(0))):
        ended = shown(pod, pod_job(phase, report(main=ends, done=True)))["terminated"]
        assert (ended["reason"], "had ended before" in ended["message"]) == ("ContainerStatusUnknown", True)


def test_one_that_ran_has_ended_with_a_job_that_slurm_killed() -> None:
    job = pod_job(Phase.FAILED, report(main=RUNS, debugger=RUNS), state="TIMEOUT")
    ended = shown(running_pod("Running", **DEBUG), job)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "DeadlineExceeded")
