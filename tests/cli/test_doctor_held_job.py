"""The held job of `doctor`: what it asks for, and that none is left in Slurm, however `doctor` ends."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kubectl_slurm.checks.held_job import UNTIL_LABEL, HeldJob
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.redbox.answers import IdentityAtRedbox
from tests.cli.factories import slurmcluster, slurmjob
from tests.cli.harness import PROGRAM, WITHIN_S, Kubectl, run
from tests.cli.redbox import redbox_in_place

DELETE = "delete slurmjobs.v1alpha1.redbox.dev --wait=false"
ASKED = HeldJob("default", timedelta(seconds=60))


@pytest.fixture
def kubectl(kubectl: Kubectl) -> Kubectl:
    """With a SlurmCluster for whose red-box the user may create no token, and a job that Slurm takes."""
    cluster = slurmcluster()
    cluster["spec"] = {"endpoint": "https://127.0.0.1:1", "caBundle": "", "audience": "redbox"}
    kubectl.answers("clusters", [cluster])
    kubectl.answers("job", slurmjob("doctor-x", "Submitted"))
    return kubectl


def deleted(kubectl: Kubectl) -> list[str]:
    return [call.partition(" -- ")[2] for call in kubectl.calls if DELETE in call]


def test_a_held_job_proves_that_a_submit_works_and_is_deleted(kubectl: Kubectl) -> None:
    ended = run(kubectl, "doctor", "--service-account=robot")
    assert ended.returncode == 0, ended.stdout
    said = "ok submit to hpc1: a held job was Slurm job 12 of Unix user alice, and is deleted"
    assert said in ended.stdout.splitlines()
    assert kubectl.created["spec"] == {
        "batch": "#!/bin/sh\ntrue\n",
        "hold": True,
        "serviceAccountName": "robot",
        "cluster": "hpc1",
        "resources": {"time": "1"},
    }
    assert deleted(kubectl) == [kubectl.created["metadata"]["name"]]


def test_the_options_of_submit_are_the_held_jobs(kubectl: Kubectl) -> None:
    assert run(kubectl, "doctor", "-p", "long", "-A", "physics", "-t", "10").returncode == 0
    spec = kubectl.created["spec"]
    assert (spec["partition"], spec["account"], spec["resources"]) == ("long", "physics", {"time": "10"})
    assert run(kubectl, "doctor", "-t", "soon").returncode == 2


def test_where_the_mapping_allows_several_the_held_job_names_one_of_each(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    """red-box refuses a submit that names none: such a user's own submits name them."""
    with redbox_in_place(tmp_path) as redbox:
        redbox.body = json.dumps({
            "roles": ["submit"], "user": "alice", "partitions": ["gpu", "long"],
            "accounts": ["art", "physics"], "slurmAccounts": ["physics"],
        }).encode()  # fmt: skip
        cluster = slurmcluster()
        authority = base64.b64encode(redbox.authority).decode()
        cluster["spec"] = {"endpoint": redbox.endpoint, "caBundle": authority, "audience": "redbox"}
        kubectl.answers("clusters", [cluster])
        kubectl.answers("token", {})
        ended = run(kubectl, "doctor")
    assert ended.returncode == 0, ended.stdout
    spec = kubectl.created["spec"]
    assert (spec["partition"], spec["account"]) == ("long", "physics")


def partition(name: str, *, default: bool = False, state: str = "UP") -> dict[str, Any]:
    return {"name": name, "default": default, "state": state}


@pytest.mark.parametrize(
    ("there", "allowed", "named"),
    [
        pytest.param([partition("a"), partition("b", default=True)], (), "", id="Slurm's default"),
        pytest.param([partition("a", state="DOWN"), partition("b")], (), "b", id="no default"),
        pytest.param([partition("a"), partition("b", default=True)], ("a", "b"), "b", id="default allowed"),
        pytest.param([partition("a"), partition("b", default=True)], ("a", "c"), "a", id="default forbidden"),
        pytest.param([], ("hidden", "more"), "hidden", id="partitions not published"),
    ],
)
def test_the_held_job_is_of_a_partition_that_takes_it(
    there: list[dict[str, Any]], allowed: tuple[str, ...], named: str
) -> None:
    cluster = ClusterView(slurmcluster(partitions=there))
    whoami = IdentityAtRedbox(("submit",), "alice", partitions=allowed)
    assert ASKED.for_cluster(cluster, whoami).partition == named
    of_option = HeldJob("default", ASKED.within, partition="mine", account="ours")
    assert of_option.for_cluster(cluster, whoami) == of_option


# ---------------------------------------------------------------------------------- a doctor that is ended


def begun(kubectl: Kubectl, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*words, PROGRAM, "doctor"], stdout=subprocess.PIPE, text=True, env=kubectl.environment()
    )


def until_called(kubectl: Kubectl, words: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not any(words in call for call in kubectl.calls):
        assert time.monotonic() < deadline, kubectl.calls
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("at", ["create --output=json --filename", "watch=true"])
def test_a_doctor_that_is_ended_leaves_no_job(kubectl: Kubectl, at: str, number: signal.Signals) -> None:
    """Also before it has read the API server's answer to the create."""
    if at.startswith("create"):
        takes = 'cat >"$ANSWERS/part"; mv "$ANSWERS/part" "$ANSWERS/created"; exec sleep 60'
        kubectl.when('*"create --output=json --filename"*', takes)
    kubectl.answers("job", slurmjob("doctor-x", "Pending", jobID=None))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it,
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and under nohup this one
    with begun(kubectl) as doctor:
        until_called(kubectl, at)
        while not (kubectl.folder / "created").exists():
            time.sleep(0.02)
        doctor.send_signal(number)
        assert doctor.wait(WITHIN_S) == 130
    assert deleted(kubectl) == [kubectl.created["metadata"]["name"]]


def test_a_second_signal_does_not_end_the_deletion(kubectl: Kubectl) -> None:
    """A shell that ends sends its jobs SIGHUP after the terminal has."""
    kubectl.answers("job", slurmjob("doctor-x", "Pending", jobID=None))
    kubectl.when('*"delete slurmjobs.v1"*', 'sleep 1; echo >"$ANSWERS/deleted"')
    with begun(kubectl, "setsid") as doctor:
        until_called(kubectl, "watch=true")
        doctor.send_signal(signal.SIGHUP)
        until_called(kubectl, DELETE)
        doctor.send_signal(signal.SIGHUP)
        assert doctor.wait(WITHIN_S) == 130
    assert (kubectl.folder / "deleted").exists()


def test_a_doctor_under_nohup_outlives_its_terminal(kubectl: Kubectl) -> None:
    kubectl.when("*can-i*", "sleep 0.2; echo yes")
    with begun(kubectl, "nohup") as doctor:
        until_called(kubectl, "can-i")
        doctor.send_signal(signal.SIGHUP)
        assert doctor.wait(WITHIN_S) == 0


def left(name: str, until: datetime) -> dict[str, Any]:
    job = slurmjob(name, "Submitted")
    job["metadata"]["labels"] = {UNTIL_LABEL: str(int(until.timestamp()))}
    return job


def test_jobs_that_a_killed_doctor_left_are_deleted_and_those_of_a_running_one_are_not(
    kubectl: Kubectl,
) -> None:
    now = datetime.now(UTC)
    jobs = [left("doctor-old", now - timedelta(minutes=10)), left("doctor-new", now + timedelta(seconds=30))]
    kubectl.answers("jobs", [*jobs, slurmjob("of-somebody")])
    ended = run(kubectl, "doctor")
    assert ended.returncode == 0, ended.stdout
    assert "ok submit: SlurmJob doctor-old, which an earlier doctor left, is deleted" in ended.stdout
    assert deleted(kubectl) == ["doctor-old", kubectl.created["metadata"]["name"]]
    assert int(kubectl.created["metadata"]["labels"][UNTIL_LABEL]) >= int(now.timestamp()) + 60
