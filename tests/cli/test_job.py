"""A SlurmJob in Slurm's words."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from kubectl_slurm.commands.submission import _not_in_slurm
from kubectl_slurm.errors import BadUsage
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.clusters import ClusterView, cluster_of
from kubectl_slurm.slurmjobs.job import COMPACT, WITHOUT_CODE, SlurmJobView, read_time, states_in
from kubectl_slurm.slurmjobs.reasons import CURES, END_CURES, cure_of, limits_met
from kubectl_slurm.slurmjobs.redbox.answers import RunningUsage, UsageAtEnd
from kubectl_slurm.slurmjobs.squeue_format import place
from kubectl_slurm.slurmjobs.usage import usage_of_ended, usage_of_running
from kubectl_slurm.terminal.times import clock
from redbox.jobs.record.messages import ENDINGS, REASONS
from redbox.slurm.text.error_messages import REMEDIES
from redbox.slurm.text.states import PHASES
from tests.cli.factories import slurmcluster, slurmjob, view


def test_each_state_of_slurm_has_squeues_code() -> None:
    assert PHASES.keys() - COMPACT.keys() == WITHOUT_CODE
    assert len(set(COMPACT.values())) == len(COMPACT)


def test_each_state_of_slurm_may_be_asked_for() -> None:
    assert states_in(",".join(PHASES).lower()) == PHASES.keys()
    with pytest.raises(BadUsage, match="Slurm has no state SLEEPING"):
        states_in("PD,sleeping")


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (view(phase="Succeeded", state="COMPLETED"), 0),
        (view(phase="Failed", state="FAILED", exitCode=3), 3),
        (view(phase="Failed", state="FAILED", signal=9), 137),
        (view(phase="Failed", state="TIMEOUT"), 124),
        (view(phase="Cancelled", state="CANCELLED"), 143),
        (view(phase="Failed", end="Lost"), 70),
        (view(phase="Failed", jobID=None), 65),
    ],
)
def test_a_wait_ends_with_the_jobs_own_exit_code_or_one_that_says_why(job: SlurmJobView, code: int) -> None:
    assert job.pod_exit_code() == code


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, "operator has not answered"),
        ({"conditions": [{"type": "Submitted", "message": "Slurm has not answered yet."}]}, "Slurm has not"),
        ({"message": "No red-box.", "conditions": [{"type": "Submitted", "message": "x"}]}, "No red-box."),
    ],
)
def test_a_submit_that_takes_long_says_who_is_waited_for(status: dict[str, Any], words: str) -> None:
    assert words in _not_in_slurm(SlurmJobView({"metadata": {"name": "new"}, "status": status}), None)


def test_a_job_that_waits_shows_its_reason_and_one_that_runs_its_nodes() -> None:
    assert place(view(phase="Submitted", state="PENDING", reason="Priority")) == "(Priority)"
    assert place(view(phase="Running", state="RUNNING", nodeList="n[1-3]")) == "n[1-3]"
    assert place(view(phase="Pending", jobID=None, reason="NoSuchCluster")) == "(NoSuchCluster)"
    assert place(view(phase="Suspended", state="SUSPENDED", nodeList="n1")) == "n1"
    gone = {"nodeList": "n1", "reason": "Suspended"}  # cancelled to suspend it: those nodes are another's
    assert place(view(phase="Suspended", state="CANCELLED", **gone)) == "(Suspended)"
    assert place(SlurmJobView({"metadata": {"name": "new"}, "spec": {}})) == "(Submitting)"


def test_an_object_that_has_nothing_yet_is_shown() -> None:
    job = SlurmJobView({"metadata": {"name": "new"}, "spec": {}})
    assert (job.code, job.shown_id, job.nodes, job.finished) == ("-", "-", "", False)
    assert job.elapsed_s(datetime.now(UTC)) is None


def test_an_array_that_waits_shows_its_indexes() -> None:
    assert view(phase="Submitted", spec={"array": "0-9%4"}).shown_id == "12_[0-9%4]"
    assert view(phase="Running", spec={"array": "0-9%4"}).shown_id == "12"


def test_each_reason_and_end_that_red_box_explains_has_a_cure() -> None:
    without_cure = REASONS.keys() - CURES.keys() - {"JobArrayTaskLimit"}
    assert all("release" in cure_of(view(phase="Suspended", reason=reason)) for reason in without_cure)
    assert ENDINGS.keys() <= END_CURES.keys()
    assert "kubectl slurm release train-abc12" in cure_of(view(phase="Submitted", reason="JobHeldUser"))
    held = view(phase="Suspended", reason="launch failed requeued held")
    assert "kubectl slurm release train-abc12" in cure_of(held)
    assert "--qos" in cure_of(view(phase="Submitted", reason="QOSMaxJobsPerUserLimit"))
    assert "--mem" in cure_of(view(phase="Failed", state="OUT_OF_MEMORY"))


def test_limits_that_a_job_meets_are_named() -> None:
    partition = (ClusterView(slurmcluster()).partitions or [])[0]
    asks = {"resources": {"time": "2:00:00", "nodes": 5, "memPerNode": "8G", "cpusPerTask": 8}}
    met = "; ".join(limits_met(SlurmJobView(slurmjob(spec=asks)), partition))
    assert "it asks for --time=2:00:00; partition debug allows 30:00" in met
    assert "--nodes=5; partition debug allows 2" in met
    assert "debug has 3" in met
    assert "--cpus-per-task=8; the largest node of debug has 4" in met
    assert "--mem=8G; the largest node" in met
    modest = {"resources": {"time": "30", "nodes": 2, "memPerNode": "1G"}}
    assert limits_met(SlurmJobView(slurmjob(spec=modest)), partition) == []


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "soon", 7, None])
def test_a_time_that_no_calendar_has_is_unknown(text: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile red-box may report it: in Tokyo the year 10000 has begun."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert clock(read_time(text)) == ""
    finally:
        monkeypatch.undo()
        time.tzset()


def test_usage_is_a_share_of_what_was_asked_for() -> None:
    now = datetime(2026, 11, 24, 12, 1, 40, tzinfo=UTC)
    resources = {"nodes": 2, "tasksPerNode": 2, "cpusPerTask": 2, "memPerNode": "1G"}
    report = RunningUsage("uid", 1, cpu_seconds=400.0, memory_bytes=512 * 1024 * 1024)
    since = {"startedAt": "2026-11-24T12:00:00Z"}
    used = usage_of_running(view(spec={"resources": resources}, **since), report, now, 200)
    assert (used.cpus, used.memory_mb_had, used.elapsed_s) == (8, 2048, 100)
    assert (used.cpu_share, used.memory_share, used.time_share) == ("50%", "25%", "50%")
    assert usage_of_running(view(**since), report, now, None).cpu_share == "?"
    assert usage_of_running(view(**since), None, now, None).memory_mb is None


def test_of_an_ended_job_what_was_not_measured_is_a_question_mark() -> None:
    least = UsageAtEnd("uid", 1, cpus=2, allocated_cpu_seconds=120, elapsed_seconds=60)
    used = usage_of_ended(least)
    assert (used.cpu_share, used.memory_share, used.time_share) == ("?", "?", "?")
    used = usage_of_ended(
        replace(
            least,
            cpu_seconds=30.0,
            memory_bytes=3 << 20,
            allocated_memory_bytes=4 << 20,
            time_limit_seconds=600,
        )
    )
    assert (used.cpu_share, used.memory_share, used.time_share) == ("25%", "75%", "10%")
    assert usage_of_ended(replace(least, allocated_cpu_seconds=0, cpu_seconds=0.0)).cpu_share == "?"


def test_a_slurmendpoints_job_is_asked_about_at_its_own_red_box() -> None:
    """A token for another red-box, and the script with it, would go to who must not have them."""
    asked: list[tuple[str, ...]] = []

    class OneOfEach:
        def json(self, *words: str) -> dict[str, Any]:
            asked.append(words)
            metadata = {"name": words[-1], "namespace": "alice", "uid": "4711"}
            return {"metadata": metadata, "spec": {"endpoint": "https://mine", "audience": "of another"}}

    kubectl = cast("Kubectl", OneOfEach())
    own = cluster_of(kubectl, view(cluster=None, endpoint="mine"))
    assert asked == [("get", "slurmendpoints.v1alpha1.redbox.dev", "--", "mine")]
    assert (own.spec["endpoint"], own.audience) == ("https://mine", "redbox.dev/ns/alice/4711")
    cluster_of(kubectl, view(spec={"endpoint": "mine"}))
    assert asked[1:] == [("get", "slurmclusters.v1alpha1.redbox.dev", "--", "hpc1")]


def test_advice_that_needs_a_login_on_the_cluster_is_advice_of_the_plugin() -> None:
    """Red-box's remedies, as Slurm's refusals have them."""
    for pattern, remedy in REMEDIES:
        assert not re.search("`s(info|acctmgr)", view(message=f"{pattern}. {remedy}").message)
    words = view(message="Invalid qos. `sacctmgr show associations user=$USER` lists yours.").message
    assert words == "Invalid qos. `kubectl slurm doctor` lists yours."
