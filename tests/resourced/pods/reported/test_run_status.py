"""The status of a pod that runs: what its runner reports, by kubelets' rules, and why Slurm ended it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from redbox_api.models import Job, Phase
from redbox_api.pod_report import PodReport
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.pod_view import BoundPod, digest_of, read_pod
from redbox_resourced.pods.reported import run_status
from redbox_shared.wire import LAUNCH_FAILED
from tests.resourced.pods.factories import (
    RUNS,
    WAITS,
    died,
    manifest,
    pod_job,
    report,
    running_pod,
)

INIT: dict[str, Any] = {"initContainers": [{"name": "setup", "image": "busybox"}]}
SIDECAR: dict[str, Any] = {"initContainers": [{"name": "proxy", "image": "envoy", "restartPolicy": "Always"}]}
TWO: dict[str, Any] = {"containers": [{"name": "main", "image": "a"}, {"name": "other", "image": "b"}]}
NEVER: dict[str, Any] = {"restartPolicy": "Never"}
ON_FAILURE: dict[str, Any] = {"restartPolicy": "OnFailure"}
CRASHED: dict[str, Any] = {
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": died(1),
    "restartCount": 2,
}
AGAIN = {"reason": LAUNCH_FAILED, "run": 2}
SUCCEEDED, FAILED, CANCELLED = Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED


def status(pod: BoundPod, job: Job) -> dict[str, Any]:
    written = run_status.of_job(pod, job)
    assert written is not None
    return written


def state(status: dict[str, Any], name: str = "main") -> dict[str, Any]:
    rows = [*status.get("initContainerStatuses", []), *status["containerStatuses"]]
    found: dict[str, Any] = next(row["state"] for row in rows if row["name"] == name)
    return found


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(item for item in status["conditions"] if item["type"] == kind)


def holds(status: dict[str, Any], kind: str) -> bool:
    return bool(condition(status, kind)["status"] == "True")


def test_a_queued_pod_waits_and_says_why() -> None:
    queued = status(running_pod(), pod_job(Phase.PENDING, state="PENDING", reason="Resources"))
    assert queued["phase"] == "Pending"
    assert state(queued) == {"waiting": {"reason": "ContainerCreating", "message": "Queued: Resources"}}
    assert not holds(queued, "PodReadyToStartContainers")


def test_before_its_init_containers_have_ended_a_main_container_waits_for_them() -> None:
    queued = status(running_pod(**INIT), pod_job(Phase.PENDING, reason="Priority"))
    assert state(queued)["waiting"]["reason"] == "PodInitializing"
    assert condition(queued, "Initialized")["message"] == "containers with incomplete status: [setup]"


@pytest.mark.parametrize(
    ("spec", "reported", "phase"),
    [
        ({}, report(main=WAITS), "Pending"),
        ({}, report(main=RUNS), "Running"),
        (TWO, report(main=RUNS, other=WAITS), "Pending"),
        (TWO | NEVER, report(main=RUNS, other=died(1)), "Running"),
        ({}, report(main=CRASHED), "Running"),
        (ON_FAILURE, report(main=died(1)), "Running"),
        (INIT, report(setup=RUNS), "Pending"),
        (INIT, report(setup=died(0), main=RUNS), "Running"),
        (INIT, report(setup=CRASHED), "Pending"),
        (SIDECAR, report(proxy=RUNS), "Pending"),
        (SIDECAR, report(proxy={"state": RUNS, "started": True}, main=RUNS), "Running"),
    ],
)
def test_the_phase_is_the_one_that_a_kubelet_gives(
    spec: dict[str, Any], reported: PodReport, phase: str
) -> None:
    assert status(running_pod(**spec), pod_job(pod=reported))["phase"] == phase


def test_a_main_container_that_has_ended_is_not_the_end_while_the_report_is_not_done() -> None:
    assert status(running_pod(**NEVER), pod_job(pod=report(main=died(0))))["phase"] == "Running"


def test_containers_that_a_signal_ended_wait_for_slurms_state() -> None:
    reported = report(main=died(143), done=True)
    assert status(running_pod(**NEVER), pod_job(pod=reported))["phase"] == "Running"
    preempted = status(running_pod("Running", **NEVER), pod_job(CANCELLED, reported, state="PREEMPTED"))
    assert (preempted["phase"], preempted["reason"]) == ("Failed", "Preempted")
    assert holds(preempted, "DisruptionTarget")
    assert state(preempted)["terminated"]["exitCode"] == 143


@pytest.mark.parametrize(
    ("slurm", "reason"),
    [("PREEMPTED", "Preempted"), ("NODE_FAIL", "NodeLost"), ("TIMEOUT", "DeadlineExceeded")],
)
def test_a_program_that_ends_well_on_slurms_signal_has_not_succeeded(slurm: str, reason: str) -> None:
    reported = report(main=died(0), done=True, stopped=True)
    assert status(running_pod(**NEVER), pod_job(pod=reported))["phase"] == "Running"
    ended = status(running_pod("Running", **NEVER), pod_job(FAILED, reported, state=slurm))
    assert (ended["phase"], ended["reason"]) == ("Failed", reason)
    assert state(ended)["terminated"]["exitCode"] == 0


def test_a_program_that_ends_well_on_its_pods_deletion_has_succeeded() -> None:
    reported = report(main=died(0), done=True, stopped=True)
    ended = status(running_pod("Running", **NEVER), pod_job(SUCCEEDED, reported, state="FAILED"))
    assert ended["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("phase", "slurm", "reason", "is_disruption"),
    [
        (FAILED, "TIMEOUT", "DeadlineExceeded", False),
        (FAILED, "NODE_FAIL", "NodeLost", True),
        (CANCELLED, "PREEMPTED", "Preempted", True),
        (FAILED, "PREEMPTED", "Preempted", True),
        (CANCELLED, "CANCELLED", "Cancelled", False),
        (FAILED, "OUT_OF_MEMORY", "OOMKilled", False),
        (Phase.LOST, None, "ContainerStatusUnknown", False),
    ],
)
def test_what_slurm_killed_with_its_runner_says_why(
    phase: Phase, slurm: str | None, reason: str, *, is_disruption: bool
) -> None:
    ended = status(running_pod("Running", **NEVER), pod_job(phase, report(main=RUNS), state=slurm))
    killed = state(ended)["terminated"]
    assert (ended["phase"], killed["exitCode"], killed["reason"]) == ("Failed", 137, reason)
    assert killed["finishedAt"] == "2026-11-21T13:01:00Z"
    assert ("DisruptionTarget" in {item["type"] for item in ended["conditions"]}) is is_disruption


@pytest.mark.parametrize(
    ("spec", "reported"),
    [
        (NEVER, report(main=RUNS)),
        (ON_FAILURE, report(main=CRASHED)),
        (ON_FAILURE, report(main=died(1))),
        (INIT | NEVER, report(setup=RUNS)),
        (TWO | NEVER, report(main=died(0), other=RUNS)),
        (NEVER, None),
    ],
)
def test_a_last_report_that_could_not_be_written_does_not_make_a_success_a_failure(
    spec: dict[str, Any], reported: PodReport | None
) -> None:
    """The job's exit code is the runner's: a full quota costs the report, not the result."""
    job = pod_job(SUCCEEDED, reported, state="COMPLETED", exit_code=0)
    ended = status(running_pod("Running", **spec), job)
    assert (ended["phase"], ended.get("reason")) == ("Succeeded", None)
    code = state(ended)["terminated"]
    assert (code["exitCode"], code["reason"]) == (0, "Completed")


@pytest.mark.parametrize(
    ("slurm", "fields", "shown"),
    [
        ("FAILED", {"exit_code": 3}, (3, "Error")),
        ("FAILED", {"exit_code": 0, "signal": 9}, (137, "ContainerStatusUnknown")),
        ("TIMEOUT", {"exit_code": 1}, (137, "DeadlineExceeded")),
    ],
)
def test_without_a_last_report_the_exit_code_is_slurms(
    slurm: str, fields: dict[str, Any], shown: tuple[int, str]
) -> None:
    ended = status(running_pod("Running", **NEVER), pod_job(FAILED, report(main=RUNS), state=slurm, **fields))
    killed = state(ended)["terminated"]
    assert (ended["phase"], killed["exitCode"], killed["reason"]) == ("Failed", *shown)


def test_a_container_that_had_ended_keeps_its_own_end() -> None:
    job = pod_job(FAILED, report(main=RUNS, other=died(3)), state="TIMEOUT")
    ended = status(running_pod("Running", **TWO, **NEVER), job)
    assert state(ended, "other")["terminated"]["exitCode"] == 3
    assert ended["reason"] == "DeadlineExceeded"


def test_a_container_that_waited_for_its_next_start_ends_with_its_last_end() -> None:
    ended = status(running_pod("Running"), pod_job(CANCELLED, report(main=CRASHED), state="CANCELLED"))
    assert state(ended)["terminated"]["exitCode"] == 1
    assert ended["containerStatuses"][0]["restartCount"] == 2


def test_the_runners_word_counts_although_slurm_calls_the_whole_job_out_of_memory() -> None:
    reported = report(main=died(0), other=died(137, "OOMKilled"), done=True)
    ended = status(running_pod("Running", **TWO, **NEVER), pod_job(FAILED, reported, state="OUT_OF_MEMORY"))
    assert state(ended)["terminated"]["reason"] == "Completed"
    assert state(ended, "other")["terminated"]["reason"] == "OOMKilled"
    assert "reason" not in ended


@pytest.mark.parametrize("slurm", ["NODE_FAIL", "CANCELLED", "FAILED"])
def test_what_slurm_makes_of_a_job_that_had_ended_changes_nothing(slurm: str) -> None:
    """A slurmctld that was killed before it saved the end starts the job again, or misses it on its node."""
    job = pod_job(FAILED, report(main=died(5), done=True), state=slurm, run=2)
    ended = status(running_pod("Running", **NEVER), job)
    assert (ended["phase"], "reason" in ended) == ("Failed", False)
    assert "DisruptionTarget" not in {item["type"] for item in ended["conditions"]}
    (main,) = ended["containerStatuses"]
    assert (main["restartCount"], main["state"]["terminated"]["exitCode"]) == (0, 5)


def test_a_pod_that_ran_too_long_fails_although_its_container_ended_well() -> None:
    reported = report(main=died(0), done=True).model_copy(update={"reason": "DeadlineExceeded"})
    ended = status(running_pod("Running", **NEVER), pod_job(FAILED, reported, state="FAILED"))
    assert (ended["phase"], ended["reason"]) == ("Failed", "DeadlineExceeded")


@pytest.mark.parametrize(
    ("spec", "reported", "fields", "reason", "states"),
    [
        ({}, None, {"state": "CANCELLED"}, "Cancelled", {"main": 137}),
        ({}, None, {"state": "CANCELLED", "reason": LAUNCH_FAILED}, LAUNCH_FAILED, {"main": 137}),
        ({}, None, {"state": "NODE_FAIL"}, "NodeLost", {"main": 137}),
        ({}, None, {"state": "FAILED", "exit_code": 1}, "StartError", {"main": 128}),
        ({}, report(main=WAITS), {"state": "CANCELLED"}, "Cancelled", {"main": 137}),
        ({}, report(main=RUNS), {"state": "FAILED", "exit_code": 70, **AGAIN}, LAUNCH_FAILED, {"main": 137}),
        (INIT, None, {"state": "NODE_FAIL"}, "NodeLost", {"setup": 137, "main": None}),
        (INIT, report(setup=died(0)), {"state": "NODE_FAIL"}, "NodeLost", {"setup": 0, "main": 137}),
        (SIDECAR, report(proxy=RUNS), {"state": "NODE_FAIL"}, "NodeLost", {"proxy": 137, "main": 137}),
        (TWO, report(main=RUNS), {"state": "NODE_FAIL"}, "NodeLost", {"main": 137, "other": 137}),
    ],
)
def test_what_was_to_start_next_does_not_wait_in_a_pod_that_is_over(
    spec: dict[str, Any],
    reported: PodReport | None,
    fields: dict[str, Any],
    reason: str,
    states: dict[str, int | None],
) -> None:
    """Kubelets' TerminatePod; main containers wait for ever for an init container that failed."""
    phase = CANCELLED if fields["state"] == "CANCELLED" else FAILED
    ended = status(running_pod(**spec), pod_job(phase, reported, **fields))
    shown = {name: state(ended, name).get("terminated", {}).get("exitCode") for name in states}
    assert (ended["phase"], ended["reason"], shown) == ("Failed", reason, states)
    first = next(name for name, code in states.items() if code in {128, 137})
    ran = any(each.name == first and each.state.running for each in (reported.containers if reported else ()))
    never = "ContainerStatusUnknown" if reason == "Cancelled" else reason
    assert state(ended, first)["terminated"]["reason"] == (reason if ran else never)


def test_a_node_that_cannot_run_the_pod_ends_its_container_before_slurm_has_ended_the_job() -> None:
    words = {"reason": "StartError", "message": "No apptainer on n1."}
    reported = report(main=WAITS, done=True).model_copy(update=words)
    ending = status(running_pod(**NEVER), pod_job(pod=reported))
    end = state(ending)["terminated"]
    assert (ending["phase"], end["exitCode"]) == ("Running", 128)
    assert (end["reason"], end["message"]) == (words["reason"], words["message"])
    failed = status(running_pod("Running", **NEVER), pod_job(FAILED, reported, state="FAILED"))
    assert (failed["phase"], failed["reason"]) == ("Failed", "StartError")


@pytest.mark.parametrize(
    ("phase", "fields", "reason"),
    [
        (CANCELLED, {"state": "CANCELLED", "reason": LAUNCH_FAILED}, LAUNCH_FAILED),
        (Phase.LOST, {"state": "PENDING", "no_sign_of_start": True}, "ForgottenBySlurm"),
        (Phase.LOST, {"state": "RUNNING"}, None),
        (CANCELLED, {"state": "CANCELLED"}, None),
    ],
)
def test_a_job_that_slurm_lost_before_it_started_is_a_disruption(
    phase: Phase, fields: dict[str, Any], reason: str | None
) -> None:
    ended = status(running_pod(**NEVER), pod_job(phase, **fields))
    found = [item["reason"] for item in ended["conditions"] if item["type"] == "DisruptionTarget"]
    assert (ended["phase"], found) == ("Failed", [reason] if reason else [])


def test_a_job_that_never_started_a_runner_fails_with_red_boxs_sentence() -> None:
    job = pod_job(FAILED, state="FAILED", exit_code=1, message="Node c1 has no Python 3.6.")
    ended = status(running_pod(), job)
    assert (ended["phase"], ended["reason"], ended["message"]) == (
        "Failed",
        "StartError",
        "Node c1 has no Python 3.6.",
    )


def test_a_phase_never_goes_back() -> None:
    pulling = status(running_pod("Running"), pod_job(pod=report(main=WAITS)))
    assert pulling["phase"] == "Running"
    assert run_status.of_job(running_pod("Running"), pod_job()) is None


def test_a_lost_record_shows_no_container_as_waiting_that_may_have_ended() -> None:
    lost = status(running_pod("Running", **NEVER), pod_job(Phase.LOST))
    assert (lost["phase"], lost["containerStatuses"]) == ("Failed", [])


def test_containers_are_shown_in_the_order_of_the_spec_and_no_others() -> None:
    reported = report(stranger=RUNS, other=RUNS, main=RUNS)
    names = [row["name"] for row in status(running_pod(**TWO), pod_job(pod=reported))["containerStatuses"]]
    assert names == ["main", "other"]


def test_a_pod_is_ready_when_all_its_containers_and_gates_are() -> None:
    ready = {"state": RUNS, "ready": True, "started": True}
    unready = status(running_pod(**TWO), pod_job(pod=report(main=ready, other=RUNS)))
    assert condition(unready, "ContainersReady")["message"] == "containers with unready status: [other]"
    both = pod_job(pod=report(main=ready, other=ready))
    assert holds(status(running_pod(**TWO), both), "Ready")
    gated = TWO | {"readinessGates": [{"conditionType": "example.org/lb"}]}
    waits = status(running_pod("Running", **gated), both)
    assert holds(waits, "ContainersReady")
    assert condition(waits, "Ready")["reason"] == "ReadinessGatesNotReady"
    opened = {"type": "example.org/lb", "status": "True"}
    assert holds(status(running_pod("Running", opened, **gated), both), "Ready")


def test_a_condition_that_does_not_change_keeps_its_time() -> None:
    ready = {"state": RUNS, "ready": True}
    since = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T13:00:13Z"}
    shown = status(running_pod("Running", since), pod_job(pod=report(main=ready)))
    assert condition(shown, "Ready")["lastTransitionTime"] == "2026-11-21T13:00:13Z"
    assert condition(shown, "ContainersReady")["lastTransitionTime"] == "2026-11-21T13:00:20Z"


def test_an_unchanged_status_is_recognized() -> None:
    wanted = status(running_pod("Running"), pod_job(pod=report(main=RUNS)))
    written = read_pod(manifest(wanted | {"qosClass": "BestEffort"}))
    assert written.status_digest == digest_of(status(written, pod_job(pod=report(main=RUNS))))


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00+14:00", "0999-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"]
)
def test_a_time_that_no_clock_shows_is_written_as_one_that_kubernetes_takes(time: str) -> None:
    """Else the status could not be written, and a pod that is being deleted would stay for ever."""
    told = {"exitCode": 0, "reason": "Completed", "startedAt": time, "finishedAt": time}
    rows = [{"name": "main", "state": {"terminated": told}}]
    reported = PodReport.model_validate({"at": time, "done": True, "containers": rows})
    ended = state(status(running_pod(), pod_job(pod=reported)))["terminated"]
    assert re.fullmatch(r"(1970|9000)-01-01T00:00:00Z", ended["finishedAt"])


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "nowhere", "224.0.0.1", ""])
def test_an_address_that_no_node_can_have_is_not_shown(address: str) -> None:
    reported = report(main=RUNS).model_copy(update={"host_ip": address})
    assert "hostIP" not in status(running_pod(), pod_job(pod=reported))


def test_a_pod_has_an_address_only_where_pods_are_routed() -> None:
    shown = status(running_pod(), pod_job(pod=report(main=RUNS)))
    assert (shown["hostIP"], "podIP" in shown) == ("10.1.0.7", False)
    assert run_status.with_pod_address(shown)["podIPs"] == [{"ip": "10.1.0.7"}]


def test_a_missing_secret_is_the_reason_of_the_first_container() -> None:
    words = {"reason": "CreateContainerConfigError", "message": 'Error: secret "s" not found'}
    waiting = run_status.waiting(running_pod(**INIT), **words)
    assert state(waiting, "setup") == {"waiting": words}
    assert state(waiting)["waiting"]["reason"] == "PodInitializing"


def test_a_pod_that_no_job_can_be_fails_as_one_that_a_kubelet_does_not_admit() -> None:
    failed = run_status.refused(running_pod(), JobRefusal("spec.hostPID is refused.", reason="Unsupported"))
    assert (failed["phase"], failed["reason"], failed["message"]) == (
        "Failed",
        "Unsupported",
        "spec.hostPID is refused.",
    )


def test_a_pod_that_was_deleted_before_it_ran_has_a_last_phase() -> None:
    ended = run_status.never_ran(running_pod())
    assert (ended["phase"], state(ended)["terminated"]["reason"]) == ("Failed", "ContainerStatusUnknown")
