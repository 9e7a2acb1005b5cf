"""What `cancel` and the other actions act on: exactly the jobs that were meant."""

from __future__ import annotations

import pytest

from kubectl_slurm.commands.doctor import is_used_up
from kubectl_slurm.commands.history import since
from tests.cli.factories import slurmjob
from tests.cli.harness import Kubectl, run


def deleted(kubectl: Kubectl) -> list[str]:
    return [call.rpartition(" -- ")[2] for call in kubectl.calls if " delete " in call]


def test_all_beside_a_name_cancels_nothing(kubectl: Kubectl) -> None:
    ended = run(kubectl, "cancel", "--all", "train-abc12")
    assert (ended.returncode, ended.stdout, kubectl.calls) == (2, "", [])
    assert "give names or --all" in ended.stderr


def test_all_are_those_that_have_not_ended(kubectl: Kubectl) -> None:
    assert run(kubectl, "cancel", "--all").returncode == 0
    assert len(deleted(kubectl)) == 3


def test_no_name_is_a_wrong_command_line(kubectl: Kubectl) -> None:
    ended = run(kubectl, "hold")
    assert ended.returncode == 2
    assert "which job?" in ended.stderr


@pytest.mark.parametrize("elsewhere", [{"cluster": "hpc2"}, {"cluster": None, "endpoint": "mine"}])
def test_a_job_id_of_two_slurm_clusters_names_neither(kubectl: Kubectl, elsewhere: dict[str, str]) -> None:
    kubectl.forgets("job")
    kubectl.answers("jobs", [slurmjob("here"), slurmjob("there", **elsewhere)])
    ended = run(kubectl, "cancel", "12")
    assert ended.returncode == 1
    assert "name one of the SlurmJobs here, there" in ended.stderr
    assert deleted(kubectl) == []


def test_a_job_id_that_slurm_uses_again_is_the_job_that_has_not_ended(kubectl: Kubectl) -> None:
    kubectl.forgets("job")
    kubectl.answers(
        "jobs", [slurmjob("a"), slurmjob("b", "Succeeded"), slurmjob("c", "Failed", cluster="hpc2")]
    )
    assert run(kubectl, "cancel", "12").returncode == 0
    assert deleted(kubectl) == ["a"]


def test_an_array_is_named_as_the_queue_shows_it_and_a_task_of_it_is_refused(kubectl: Kubectl) -> None:
    kubectl.forgets("job")
    assert run(kubectl, "cancel", "13_[0-9]").returncode == 0
    assert deleted(kubectl) == ["wait-def34"]
    ended = run(kubectl, "cancel", "13_4")
    assert ended.returncode == 1
    assert "whole array" in ended.stderr
    assert deleted(kubectl) == ["wait-def34"]


def test_a_kubectl_that_is_named_is_found_as_a_shell_finds_it(kubectl: Kubectl) -> None:
    missing = run(kubectl, "queue", env=kubectl.environment(KUBECTL="/nowhere/kubectl"))
    assert missing.returncode == 1
    assert missing.stderr.startswith("kubectl slurm: /nowhere/kubectl is not there")
    named = kubectl.environment(KUBECTL="kubectl")
    named["PATH"] = f"{kubectl.program.parent}:{named['PATH']}"
    assert run(kubectl, "exec", "train-abc12", "--", "true", env=named).returncode == 0


@pytest.mark.parametrize(
    ("hard", "used_up"),
    [("1k", ["1k", "1001", "1M", "2M"]), (2, [2, "3"]), ("1M", ["1M", "2M"]), ("many", [])],
)
def test_a_quota_of_thousands_is_read(hard: object, used_up: list[object]) -> None:
    amounts = ["0", "999", "1k", "1001", "1M", "2M"] if isinstance(hard, str) else [1, 2, "3"]
    assert [used for used in amounts if is_used_up(used, hard)] == used_up


def test_a_very_long_time_ago_is_all_of_the_history() -> None:
    assert since("999999d") < since("36000d")
