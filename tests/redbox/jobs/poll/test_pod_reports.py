"""What a pod's runner reports reaches callers while it runs, and decides its end."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from redbox.jobs.poll import pod_reports
from redbox.jobs.poll.node_addresses import NodeAddresses
from redbox_api.models import Job, JobRequest, Phase
from redbox_api.pod_report import LONGEST_REPORT
from tests.redbox.jobs.harness import BOB, World, caller

AT = "2026-01-01T00:00:00Z"
POD = {
    "pod": {
        "name": "p",
        "namespace": "physics",
        "uid": "u",
        "containers": [{"name": "c", "image": "docker://x"}],
    }
}
RUNNING = {"running": {"startedAt": AT}}


def ended(code: int = 0, reason: str = "Completed", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": AT, **more}}


def report(*states: dict[str, Any], **facts: Any) -> bytes:
    """A line of a runner whose main containers are in these states."""
    containers = [{"name": f"c{number}", "state": state} for number, state in enumerate(states)]
    return json.dumps({"at": AT, "containers": containers, **facts}).encode()


class Pods:
    """A world with pods."""

    def __init__(self, world: World) -> None:
        self.world = world

    def start(self, key: str = "key", who: Any = None) -> str:
        who = who or caller()
        self.world.run(self.world.jobs.put(who, key, 1, JobRequest.model_validate(POD)))
        job_id = self.get(key, who).job_id
        assert job_id is not None
        self.world.slurm.start(job_id)
        self.world.advance(3)
        return job_id

    def get(self, key: str = "key", who: Any = None) -> Job:
        return self.world.run(self.world.jobs.get(who or caller(), key))

    def says(self, line: bytes, job_id: str = "1") -> None:
        mark = next(job.mark for job in self.world.slurm.ever if job.job_id == job_id)
        self.world.slurm.reports[mark] = line

    def reads(self, seconds: float) -> int:
        """How many reads this time brings."""
        before = len(self.world.slurm.reports_read)
        self.world.advance(seconds)
        return len(self.world.slurm.reports_read) - before


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The login node resolves n1, to two addresses."""

    async def resolve(name: str) -> tuple[str, ...]:
        if name != "n1":
            raise OSError(name)
        return "10.1.0.7", "fd00::7"

    monkeypatch.setattr(pod_reports, "NodeAddresses", partial(NodeAddresses, resolve=resolve))


@pytest.fixture
def pods(world: World) -> Pods:
    return Pods(world)


def states_of(job: Job) -> list[str]:
    assert job.pod is not None
    states = [container.state for container in job.pod.containers]
    return ["running" if s.running else "terminated" if s.terminated else "waiting" for s in states]


def test_a_change_is_shown_within_two_seconds_and_makes_a_new_revision(pods: Pods) -> None:
    pods.start()
    assert pods.get().pod is None
    pods.says(report(RUNNING))
    pods.world.advance(2)
    before = pods.get()
    assert states_of(before) == ["running"]
    pods.says(report(RUNNING, message="more"))
    pods.world.advance(2)
    after = pods.get()
    assert after.pod is not None
    assert after.pod.message == "more"
    assert after.revision != before.revision
    listed = pods.world.run(pods.world.jobs.list(caller())).items[0]
    assert listed.pod == after.pod


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ('"hostIP": "10.1.0.7"', "10.1.0.7"),
        ('"hostIP": "fd00::7"', "fd00::7"),
        ('"hostIP": "10.96.0.1"', "10.1.0.7"),  # the user's own choice
        ('"hostIP": "x"', "10.1.0.7"),
        ('"host\\u0049P": "10.96.0.1"', ""),
        ('"hostIP": ""', ""),
    ],
)
def test_the_address_is_one_of_the_jobs_node(pods: Pods, reported: str, shown: str) -> None:
    pods.start()
    pods.says(f'{{"at": "{AT}", {reported}, "containers": []}}'.encode())
    pods.world.advance(3)
    job = pods.get()
    assert job.pod is not None
    assert job.pod.host_ip == shown


def test_a_node_whose_name_is_not_resolved_has_no_address(pods: Pods) -> None:
    pods.start()
    pods.world.slurm.put(replace(pods.world.slurm.jobs["1"], nodes="n9"))
    pods.world.advance(3)
    pods.says(report(RUNNING, hostIP="10.1.0.7"))
    pods.world.advance(3)
    job = pods.get()
    assert job.pod is not None
    assert (states_of(job), job.pod.host_ip) == (["running"], "")


def test_a_report_that_stays_the_same_makes_no_revision_and_one_read_a_second(pods: Pods) -> None:
    pods.start()
    pods.says(report(RUNNING))
    pods.world.advance(3)
    before = pods.get().revision
    assert 8 <= pods.reads(10) <= 11
    assert pods.get().revision == before


def test_a_pod_that_waits_and_a_settled_one_cost_no_reads(pods: Pods) -> None:
    pods.world.run(pods.world.jobs.put(caller(), "waits", 1, JobRequest.model_validate(POD)))
    assert pods.reads(60) == 0
    job_id = pods.start()
    pods.says(report(RUNNING, settled=True), job_id)
    pods.world.advance(3)
    assert pods.reads(600) == 0


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "OUT_OF_MEMORY", "CANCELLED", "TIMEOUT"])
def test_the_last_word_of_the_runner_counts_whatever_slurm_calls_it(pods: Pods, state: str) -> None:
    pods.start()
    pods.says(report(RUNNING, settled=True))
    pods.world.advance(3)
    pods.says(report(ended(), done=True))
    pods.world.slurm.end("1", state, 0 if state == "COMPLETED" else 1)
    pods.world.advance(3)
    job = pods.get()
    assert (job.phase, job.exit_code, job.message, states_of(job)) == (
        Phase.SUCCEEDED,
        0,
        None,
        ["terminated"],
    )


@pytest.mark.parametrize(
    ("state", "main", "phase", "words"),
    [
        ("TIMEOUT", ended(0), Phase.FAILED, "time limit"),
        ("NODE_FAIL", ended(0), Phase.FAILED, "A node that it ran on failed"),
        ("CANCELLED", ended(0), Phase.CANCELLED, "cancelled in Slurm"),
        (
            "CANCELLED",
            {"waiting": {"reason": "ImagePullBackOff"}},
            Phase.CANCELLED,
            "It was cancelled in Slurm",
        ),
        ("FAILED", ended(0), Phase.SUCCEEDED, ""),  # its runner's exit code tells of the pod's deletion
    ],
)
def test_containers_that_slurms_signal_ended_or_did_not_let_start_end_as_slurm_says(
    pods: Pods, state: str, main: dict[str, Any], phase: Phase, words: str
) -> None:
    pods.start()
    pods.says(report(main, done=True, stopped=True))
    pods.world.slurm.end("1", state)
    pods.world.advance(200)  # beyond the time in which Slurm may take back an end
    job = pods.get()
    assert (job.phase, words in (job.message or "")) == (phase, True)


def test_one_container_that_failed_fails_the_pod_with_its_exit_code(pods: Pods) -> None:
    pods.start()
    pods.says(report(ended(), ended(137, "OOMKilled", signal=9), ended(3, "Error"), done=True))
    pods.world.slurm.end("1", "COMPLETED")
    pods.world.advance(3)
    job = pods.get()
    assert (job.phase, job.exit_code, job.signal) == (Phase.FAILED, 137, 9)
    assert job.message == "Container c1 ended with exit code 137 (OOMKilled)."


def test_a_reason_of_the_pod_fails_it_though_its_containers_did_not(pods: Pods) -> None:
    pods.start()
    pods.says(report(ended(), done=True, reason="DeadlineExceeded", message="It ran for too long."))
    pods.world.slurm.end("1", "COMPLETED")
    pods.world.advance(3)
    job = pods.get()
    wanted = (Phase.FAILED, None, "DeadlineExceeded: It ran for too long.")
    assert (job.phase, job.exit_code, job.message) == wanted


def test_an_init_container_that_failed_gives_the_exit_code(pods: Pods) -> None:
    pods.start()
    rows = [
        {"name": "side", "kind": "sidecar", "state": ended(143, "Error")},
        {"name": "first", "kind": "init", "state": ended(5, "Error")},
        {"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}},
    ]
    pods.says(report(done=True, containers=rows))
    pods.world.slurm.end("1", "COMPLETED")
    pods.world.advance(3)
    job = pods.get()
    assert (job.phase, job.exit_code) == (Phase.FAILED, 5)


def test_a_runner_that_was_killed_leaves_slurms_state(pods: Pods) -> None:
    pods.start()
    pods.says(report(RUNNING))
    pods.world.advance(3)
    pods.world.slurm.end("1", "TIMEOUT", 0, 15)
    pods.world.advance(12)
    job = pods.get()
    assert (job.phase, job.state, states_of(job)) == (Phase.FAILED, "TIMEOUT", ["running"])


def test_a_last_line_that_the_file_system_shows_late_still_counts(pods: Pods) -> None:
    pods.start()
    pods.says(report(RUNNING))
    pods.world.slurm.end("1", "OUT_OF_MEMORY", 125)
    pods.world.advance(3)
    assert pods.get().phase is Phase.RUNNING
    pods.says(report(ended(), done=True))
    pods.world.advance(3)
    assert pods.get().phase is Phase.SUCCEEDED


def test_a_pod_that_never_started_is_final_at_once(pods: Pods) -> None:
    pods.world.run(pods.world.jobs.put(caller(), "key", 1, JobRequest.model_validate(POD)))
    pods.world.slurm.end("1", "CANCELLED")
    pods.world.advance(3)
    assert pods.get().phase is Phase.CANCELLED


def test_a_home_that_hangs_delays_the_end_by_twenty_seconds_and_no_other_user(pods: Pods) -> None:
    bob = caller(BOB, "biology")
    pods.start("hangs")
    job_id = pods.start("works", bob)
    pods.world.slurm.hanging_homes.add(2001)
    pods.world.advance(10)
    pods.says(report(ended(), done=True), job_id)
    pods.world.slurm.end("1", "COMPLETED")
    pods.world.slurm.end(job_id, "COMPLETED")
    pods.world.advance(3)
    assert pods.get("works", bob).phase is Phase.SUCCEEDED
    pods.world.advance(15)
    assert pods.get("hangs").phase is Phase.RUNNING
    pods.world.advance(20)
    job = pods.get("hangs")
    assert job.phase is Phase.SUCCEEDED
    assert any("could not be read" in warning for warning in job.warnings)


def test_the_private_folder_is_there_until_the_last_report_was_read(pods: Pods) -> None:
    pods.start()
    pods.world.slurm.hanging_homes.add(2001)
    pods.world.slurm.end("1", "COMPLETED")
    pods.world.advance(10)
    assert not pods.get().phase.endswith("ed")
    assert pods.world.slurm.tidied == []


def test_a_restarted_red_box_shows_the_report_and_reads_the_last_one(pods: Pods) -> None:
    pods.start()
    pods.says(report(RUNNING, settled=True))
    pods.world.advance(3)
    pods.world.restart()
    assert states_of(pods.get()) == ["running"]
    pods.world.crash()
    pods.says(report(ended(7, "Error"), done=True))
    pods.world.slurm.end("1", "COMPLETED")
    pods.world.start()
    pods.world.advance(3)
    job = pods.get()
    assert (job.phase, job.exit_code) == (Phase.FAILED, 7)
    pods.world.restart()
    assert pods.get().exit_code == 7


def test_a_lost_pod_has_ended_as_its_runner_reported(pods: Pods) -> None:
    pods.start()
    pods.says(report(RUNNING, settled=True))
    pods.world.advance(3)
    pods.says(report(ended(4, "Error"), done=True))
    pods.world.slurm.forget("1", rows_too=True)
    pods.world.advance(2000)
    job = pods.get()
    assert (job.phase, job.exit_code) == (Phase.FAILED, 4)


HOSTILE = {
    "long": report(RUNNING, message="x" * LONGEST_REPORT),
    "ten megabytes": b"x" * 10_000_000,
    "no UTF-8": b'{"at": "\xff\xfe"}',
    "too often": report(containers=[{"name": "c", "restartCount": 2**40}]),
    "negative": report(containers=[{"name": "c", "restartCount": -1}]),
    "deep": b"[" * 100_000,
    "no object": b"42",
    "no JSON": b"{",
    "a code that no process has": report(ended(4711)),
    "half a surrogate": b'{"at": "2026-01-01T00:00:00Z", "message": "\\ud800"}',
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_line_that_is_no_report_is_one_warning_and_changes_nothing_else(pods: Pods, line: bytes) -> None:
    pods.start()
    pods.says(report(RUNNING))
    pods.world.advance(3)
    held = pods.get().pod
    for number in range(3):
        pods.says(line + b" " * number)
        pods.world.advance(320)
    job = pods.get()
    assert job.pod == held
    assert len([warning for warning in job.warnings if "report.jsonl" in warning]) == 1
    pods.says(report(ended(), done=True))
    pods.world.slurm.end("1", "COMPLETED")
    pods.world.advance(320)
    assert pods.get().phase is Phase.SUCCEEDED


def test_a_report_that_goes_back_in_time_counts_but_none_after_the_runners_last_word(pods: Pods) -> None:
    pods.start()
    pods.says(report(RUNNING, message="new"))
    pods.world.advance(3)
    pods.says(report(RUNNING, at="1999-01-01T00:00:00Z", message="old"))
    pods.world.advance(3)
    job = pods.get()
    assert job.pod is not None
    assert job.pod.message == "old"  # a node's clock may have been set
    pods.says(report(ended(1, "Error"), done=True))
    pods.world.advance(3)
    pods.says(report(RUNNING))
    pods.world.slurm.end("1", "COMPLETED")
    pods.world.advance(60)
    assert pods.get().exit_code == 1
    assert states_of(pods.get()) == ["terminated"]


def test_a_long_report_is_read_less_often(pods: Pods) -> None:
    pods.start()
    events = [{"number": n, "reason": "R", "message": "x" * 4000, "at": AT} for n in range(30)]
    for number in range(40):
        pods.says(report(RUNNING, events=events, message=str(number)))
        pods.world.advance(1)
    pods.world.advance(10)
    assert pods.reads(3) >= 2  # nothing new: a read costs little
    changes = 0
    before = pods.get().revision
    for number in range(40):
        pods.says(report(RUNNING, events=events, message=f"b{number}"))
        pods.world.advance(1)
        changes += pods.get().revision != before
        before = pods.get().revision
    assert 5 <= changes <= 14


def test_a_job_that_is_no_pod_is_never_read(world: World) -> None:
    world.run(world.jobs.put(caller(), "key", 1, JobRequest(batch="#!/bin/sh\n")))
    world.slurm.start("1")
    world.advance(30)
    world.slurm.end("1")
    world.advance(30)
    assert world.slurm.reports_read == []
