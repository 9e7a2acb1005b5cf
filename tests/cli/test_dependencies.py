"""`submit -d` with Slurm job ids: whose they are, is said."""

from __future__ import annotations

import pytest

from tests.cli.factories import slurmjob
from tests.cli.harness import Kubectl, run

SUBMIT = ("submit", "--wrap", "true", "-d")
PLAIN = "--dependency: 4711 is no SlurmJob here, but a job of Slurm.\n"


def test_an_id_is_a_slurmjobs_or_else_slurms_and_the_jobs_are_listed_once(kubectl: Kubectl) -> None:
    ended = run(kubectl, *SUBMIT, "afterok:12:4711,afterany:11")
    assert ended.stderr == (
        f"--dependency: 12 is SlurmJob train-abc12.\n{PLAIN}--dependency: 11 is SlurmJob done-jkl78.\n"
    )
    assert kubectl.created["spec"]["dependsOn"] == [
        {"name": "train-abc12"},
        {"name": "done-jkl78", "type": "afterany"},
    ]
    assert kubectl.created["spec"]["dependsOnJobs"] == [{"jobID": "4711"}]
    assert len([call for call in kubectl.calls if call.endswith("slurmjobs.v1alpha1.redbox.dev")]) == 1


def test_the_cluster_that_is_named_decides_whose_id_it_is(kubectl: Kubectl) -> None:
    kubectl.answers("jobs", [slurmjob(cluster="hpc2", jobID="4711")])
    assert PLAIN in run(kubectl, *SUBMIT, "afterok:4711", "--cluster", "hpc1").stderr
    assert kubectl.created["spec"]["dependsOnJobs"] == [{"jobID": "4711"}]


def test_quiet_is_quiet(kubectl: Kubectl) -> None:
    assert run(kubectl, *SUBMIT, "afterok:12", "--quiet").stderr == ""


@pytest.mark.parametrize("value", ["afterok:4711?afterok:train-abc12", "afterok:a,afterok:b?afterok:c"])
def test_any_of_several_are_slurmjobs(kubectl: Kubectl, value: str) -> None:
    ended = run(kubectl, *SUBMIT, value)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert not any("create" in call for call in kubectl.calls)


def test_a_field_that_the_api_server_refuses_is_the_option_that_was_typed(kubectl: Kubectl) -> None:
    words = 'The SlurmJob "x" is invalid: spec.array: Invalid value: "x": spec.array in body should match y'
    kubectl.becomes(f"#!/bin/sh\necho '{words}' >&2; exit 1\n")
    ended = run(kubectl, "submit", "--wrap", "true", "-a", "x")
    assert ended.stderr.endswith('--array: Invalid value: "x": --array in body should match y\n')
