"""squeue's options of `queue`."""

from __future__ import annotations

import pytest

from tests.cli.factories import slurmjob
from tests.cli.harness import Kubectl, run

RUNNING = slurmjob("runs", state="RUNNING", jobID="11", user="alice", nodeList="n1")
WAITING = slurmjob(
    "waits",
    "Submitted",
    state="PENDING",
    jobID="12",
    user="bob",
    reason="Priority",
    spec={"resources": {"time": "10"}},
)


@pytest.fixture
def queue(kubectl: Kubectl) -> Kubectl:
    kubectl.answers("jobs", [RUNNING, WAITING])
    return kubectl


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["-u", "bob"], ["waits"]),
        (["-u", "alice,bob"], ["runs", "waits"]),
        (["-j", "11"], ["runs"]),
        (["-j", "11,12", "-u", "bob"], ["waits"]),
    ],
)
def test_jobs_are_chosen_by_user_and_id(queue: Kubectl, options: list[str], names: list[str]) -> None:
    ended = run(queue, "queue", *options, "--noheader", "-o", "%j")
    assert (ended.returncode, ended.stdout.split()) == (0, names)


def test_a_job_id_that_is_not_there_is_named(queue: Kubectl) -> None:
    ended = run(queue, "queue", "-j", "99")
    assert ended.returncode == 1
    assert "there is no SlurmJob 99" in ended.stderr


def test_the_long_form_has_states_in_full_and_time_limits(queue: Kubectl) -> None:
    headings, first, second = run(queue, "queue", "-l").stdout.splitlines()
    assert headings.split() == [
        "JOBID", "PARTITION", "NAME", "USER", "STATE", "TIME", "TIME_LIMIT", "NODES", "NODELIST(REASON)",
    ]  # fmt: skip
    assert "RUNNING" in first.split()
    assert {"PENDING", "10"} <= {*second.split()}


def test_fields_are_laid_out_as_squeue_does(queue: Kubectl) -> None:
    ended = run(queue, "queue", "-o", "%.6i|%-5j|%3T|%R 100%%")
    assert ended.stdout.splitlines() == [
        " JOBID|NAME |STA|NODELIST(REASON) 100%",
        "    11|runs |RUN|n1 100%",
        "    12|waits|PEN|(Priority) 100%",
    ]


@pytest.mark.parametrize("form", ["%i %w", "table"])
def test_a_form_that_there_is_not_is_refused_before_anything_is_asked(queue: Kubectl, form: str) -> None:
    ended = run(queue, "queue", "-o", form)
    assert (ended.returncode, ended.stdout, queue.calls) == (2, "", [])
    assert "--output: " in ended.stderr
