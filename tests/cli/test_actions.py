"""What `cancel` and the other actions act on: exactly the jobs that were meant."""

from __future__ import annotations

import argparse
import re
from typing import Any

import pytest

from kubectl_slurm.checks.clusters import operator_roles
from kubectl_slurm.checks.kubernetes import is_used_up
from kubectl_slurm.checks.report import Health
from kubectl_slurm.commands.history import point_in_time
from kubectl_slurm.slurmjobs.clusters import ClusterView
from redbox_shared.requested_actions import CANCEL, REQUESTED
from tests.cli.factories import slurmcluster, slurmjob
from tests.cli.harness import Kubectl, cancelled, run, terminal


def deleted(kubectl: Kubectl) -> list[str]:
    return [call.rpartition(" -- ")[2] for call in kubectl.calls if " delete " in call]


def test_history_is_cut_at_both_ends_by_when_jobs_ended(kubectl: Kubectl) -> None:
    ends = {"old": "2026-11-01T12:00:00Z", "mid": "2026-11-10T12:00:00Z", "new": "2026-11-20T12:00:00Z"}
    kubectl.answers("jobs", [slurmjob(name, "Succeeded", endedAt=at) for name, at in ends.items()])

    def shown(*options: str) -> list[str]:
        return [line.split("/")[1] for line in run(kubectl, "history", "-o", "name", *options).stdout.split()]

    assert shown("--since", "2026-11-05") == ["mid", "new"]
    assert shown("--until", "2026-11-15") == ["old", "mid"]
    assert shown("-S", "2026-11-05", "-E", "2026-11-15T00:00") == ["mid"]


def test_all_beside_a_name_cancels_nothing(kubectl: Kubectl) -> None:
    ended = run(kubectl, "cancel", "--all", "train-abc12")
    assert (ended.returncode, ended.stdout, kubectl.calls) == (2, "", [])
    assert "give names or --all" in ended.stderr


def test_all_are_those_that_have_not_ended(kubectl: Kubectl) -> None:
    assert run(kubectl, "cancel", "--all").returncode == 0
    assert len(cancelled(kubectl)) == 3


@pytest.mark.parametrize("reason", ["launch failed requeued held", "JobHeldUser"])
def test_a_release_that_only_the_operator_can_do_is_said_to_be_requested_and_each_is_another(
    kubectl: Kubectl, reason: str
) -> None:
    kubectl.forgets("jobs")
    kubectl.answers("job", slurmjob("train", "Suspended", reason=reason, run=2))
    for _ in range(2):
        ended = run(kubectl, "release", "train")
        assert (ended.returncode, "is released" in ended.stdout) == (0, False)
        assert "`kubectl slurm explain train`" in ended.stdout
    values = re.findall(r'"redbox.dev/release": "12/2/(\w+)"', "\n".join(kubectl.calls))
    assert len(set(values)) == 2


def test_no_name_is_a_wrong_command_line(kubectl: Kubectl) -> None:
    ended = run(kubectl, "hold")
    assert ended.returncode == 2
    assert "which job?" in ended.stderr


@pytest.mark.parametrize(
    ("here", "there", "elsewhere"),
    [
        ("Running", "Running", {"cluster": "hpc2"}),
        ("Running", "Failed", {"cluster": None, "endpoint": "mine"}),
        ("Succeeded", "Running", {"cluster": None, "endpoint": "mine"}),
        ("Succeeded", "Failed", {"cluster": None, "endpoint": "mine"}),
    ],
)
def test_a_job_id_of_two_slurm_clusters_names_neither(
    kubectl: Kubectl, here: str, there: str, elsewhere: dict[str, str]
) -> None:
    """A red-box of a tenant reports what id it likes, of a job that ends when it likes."""
    kubectl.forgets("job")
    kubectl.answers("jobs", [slurmjob("train", here), slurmjob("evil", there, **elsewhere)])
    for words in (["cancel", "12"], ["cancel", "--me", "12"], ["logs", "12_[0-9]"]):
        ended = run(kubectl, *words)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "write the name of one of evil (of " in ended.stderr
        assert "), train (of hpc1)" in ended.stderr
    assert cancelled(kubectl) == []


def test_a_job_id_that_slurm_uses_again_is_the_job_that_has_not_ended(kubectl: Kubectl) -> None:
    kubectl.forgets("job")
    kubectl.answers("jobs", [slurmjob("a"), slurmjob("b", "Succeeded")])
    assert run(kubectl, "cancel", "12").returncode == 0
    assert cancelled(kubectl) == ["a"]
    kubectl.answers("jobs", [slurmjob("a"), slurmjob("c")])  # one that Slurm has forgotten
    assert "write the name of one of a (of hpc1), c (of hpc1)" in run(kubectl, "cancel", "12").stderr


def test_a_number_that_is_the_name_of_one_and_the_id_of_another_names_neither(kubectl: Kubectl) -> None:
    """Who gives a SlurmJob a number for its name gets neither the cancel nor the files of another job."""
    kubectl.answers("jobs", [slurmjob("train"), slurmjob("12", jobID="99")])
    for words in (["cancel", "12"], ["cancel", "--me", "12"], ["logs", "12"], ["cp", "secret", "12:."]):
        ended = run(kubectl, *words)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "write slurmjob/12 or train" in ended.stderr
    assert cancelled(kubectl) == []
    kubectl.answers("job", slurmjob("12", jobID="99"))
    assert run(kubectl, "cancel", "slurmjob/12").returncode == 0
    assert cancelled(kubectl) == ["12"]
    kubectl.answers("jobs", [slurmjob("12", jobID="99")])
    assert run(kubectl, "cancel", "12").returncode == 0
    assert cancelled(kubectl) == ["12"] * 2


@pytest.mark.parametrize("kind", ["slurmjob/", "slurmjob.redbox.dev/"])
def test_a_name_with_its_kind_is_a_name_to_each_command(kubectl: Kubectl, kind: str) -> None:
    """As `queue -o name` prints it, and as the refusal of a number that names two asks for it."""
    kubectl.answers("job", slurmjob(state="RUNNING"))
    named = run(kubectl, "queue", "--noheader", f"{kind}train-abc12", "13_[0-9]")
    assert (named.returncode, len(named.stdout.splitlines())) == (0, 2), named.stderr
    ended = run(kubectl, "history", "-o", "name", f"{kind}done-jkl78")
    assert ended.stdout == "slurmjob.redbox.dev/done-jkl78\n"
    assert run(kubectl, "cp", __file__, f"{kind}train-abc12:here").returncode == 0


def test_in_a_pod_my_jobs_are_those_of_its_namespace(kubectl: Kubectl) -> None:
    """kubectl uses the pod's namespace, and its account, for which it must not be given a deadline."""
    pod = kubectl.environment(NAMESPACE=" ", KUBERNETES_SERVICE_HOST="10.0.0.1", POD_NAMESPACE="alice")
    assert run(kubectl, "cancel", "--me", env=pod).returncode == 0
    assert len(cancelled(kubectl)) == 3
    assert not any("--request-timeout" in call for call in kubectl.calls)


def test_an_array_is_named_as_the_queue_shows_it_and_a_part_of_it_is_not_all_of_it(kubectl: Kubectl) -> None:
    kubectl.forgets("job")
    assert run(kubectl, "hold", "13_[0-9]").returncode == 0
    assert '"hold": true' in kubectl.calls[-1]
    for part in ("13_4", "13_[1-3]", "wait-def34_[0-8]"):
        ended = run(kubectl, "hold", part)
        assert (ended.returncode, "name the array" in ended.stderr) == (1, True)
        assert "patch" not in kubectl.calls[-1]


def test_a_task_may_be_entered_while_the_scheduler_has_suspended_another_one(kubectl: Kubectl) -> None:
    kubectl.answers("job", slurmjob(phase="Suspended", spec={"array": "0-1"}))
    assert run(kubectl, "exec", "train-abc12", "--task", "1", "--", "true").returncode == 0
    kubectl.answers("job", slurmjob(phase="Suspended"))
    ended = run(kubectl, "exec", "train-abc12", "--", "true")
    assert (ended.returncode, "does not run yet: it is Suspended" in ended.stderr) == (1, True)


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


@pytest.mark.parametrize(
    ("roles", "lines"),
    [
        (["operator", "reader", "requeue"], []),
        (["operator"], [(Health.UNKNOWN, "requeue")]),
        ([], [(Health.FAILED, "operator"), (Health.UNKNOWN, "requeue")]),
        (None, []),
    ],
)
def test_a_role_that_the_operator_lacks_is_a_line_with_its_cure(roles: Any, lines: list[Any]) -> None:
    found = list(operator_roles(ClusterView(slurmcluster(operatorRoles=roles))))
    assert [line.health for line in found] == [health for health, _ in lines]
    for line, (_, role) in zip(found, lines, strict=True):
        assert f"the role {role}, which" in line.found
        assert f"adds {role} to the roles" in line.cure


def test_a_right_on_slurmclusters_in_a_namespace_alone_is_none(kubectl: Kubectl) -> None:
    """They have no namespace, for which kubectl says yes all the same."""
    kubectl.forgets("clusters")
    right = "*can-i*slurmclusters*--all-namespaces*"
    kubectl.becomes(kubectl.program.read_text().replace("*can-i*)", f"{right}) echo no; exit 1 ;; *can-i*)"))
    ended = run(kubectl, "doctor")
    assert "?? rights: you may not list slurmclusters.redbox.dev, which info needs" in ended.stdout
    assert "redbox-cluster-viewer" in ended.stdout
    assert "ok submit: a held job was Slurm job 12 of Unix user alice, and is deleted" in ended.stdout


def test_a_very_long_time_ago_is_all_of_the_history() -> None:
    assert point_in_time("999999d") < point_in_time("36000d")
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
        point_in_time("0001-01-01T00:00:00+14:00")


# ---------------------------------------------------------------------------------------------- which jobs


def of_two_partitions(kubectl: Kubectl) -> None:
    kubectl.answers(
        "jobs",
        [
            slurmjob("a", state="RUNNING"),
            slurmjob("b", "Submitted", state="PENDING"),
            slurmjob("c", "Submitted", state="PENDING", partition="debug,long"),
            slurmjob("d", state="RUNNING", user="bob", spec={"serviceAccountName": "bobs"}),
            slurmjob("e", "Succeeded", state="COMPLETED"),
        ],
    )


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--me"], "abc"),
        (["-t", "PD"], "bc"),
        (["--state=pending,R"], "abcd"),
        (["-p", "long"], "c"),
        (["--me", "-p", "debug", "-t", "RUNNING"], "a"),
        (["-t", "PD", "c", "a"], "c"),
        (["-t", "CD"], ""),
        (["--all"], "abcd"),
    ],
)
def test_those_are_cancelled_that_all_options_select(kubectl: Kubectl, words: list[str], names: str) -> None:
    of_two_partitions(kubectl)
    ended = run(kubectl, "cancel", *words)
    assert (ended.returncode, cancelled(kubectl)) == (0, [*names])
    assert [line.split()[0] for line in ended.stdout.splitlines()] == [*names]
    assert deleted(kubectl) == []


def test_of_a_partition_that_is_not_there_those_that_are_are_named(kubectl: Kubectl) -> None:
    of_two_partitions(kubectl)
    ended = run(kubectl, "cancel", "-p", "nowhere")
    assert (ended.returncode, ended.stdout, cancelled(kubectl)) == (1, "", [])
    assert ended.stderr == "kubectl slurm: there is no partition nowhere: hpc1 has debug, long\n"
    one_is = run(kubectl, "cancel", "-p", "nowhere,long")
    assert (one_is.returncode, one_is.stderr, cancelled(kubectl)) == (1, ended.stderr, ["c"])


def test_a_state_that_slurm_has_not_cancels_nothing(kubectl: Kubectl) -> None:
    ended = run(kubectl, "cancel", "-t", "RUNING")
    assert (ended.returncode, kubectl.calls) == (2, [])
    assert "Slurm has no state RUNING" in ended.stderr


@pytest.mark.parametrize(("answer", "names"), [(b"y\n", "bc"), (b"\n", ""), (b"\x04", "")])
def test_a_terminal_is_asked_before_several_jobs_are_cancelled(
    kubectl: Kubectl, answer: bytes, names: str
) -> None:
    of_two_partitions(kubectl)
    with terminal("cancel", "-t", "PD", env=kubectl.environment()) as shown:
        shown.until(lambda lines: any("Cancel 2 jobs: b (Slurm job 12), c" in line for line in lines))
        shown.press(answer)
        assert shown.end() == 0
    assert cancelled(kubectl) == [*names]


def test_a_terminal_is_not_asked_about_one_job_or_with_yes(kubectl: Kubectl) -> None:
    of_two_partitions(kubectl)
    for words in (["-p", "long"], ["--yes", "--all"]):
        with terminal("cancel", *words, env=kubectl.environment()) as shown:
            assert shown.end() == 0
    assert cancelled(kubectl) == [*"cabcd"]


def test_delete_removes_the_slurmjob_and_one_that_has_ended_too(kubectl: Kubectl) -> None:
    assert run(kubectl, "cancel", "--delete", "train-abc12").returncode == 0
    kubectl.answers("job", slurmjob("e", "Succeeded"))
    assert "it had ended" in run(kubectl, "cancel", "--delete", "e").stdout
    assert (deleted(kubectl), cancelled(kubectl)) == (["train-abc12", "e"], [])


def test_a_job_that_is_deleted_meanwhile_does_not_keep_the_wait_from_the_others(kubectl: Kubectl) -> None:
    kubectl.watched("DELETED", slurmjob())
    ended = run(kubectl, "cancel", "--wait", "train-abc12", "other")
    assert ended.returncode == 1
    assert ended.stdout.count("is cancelled") == 2
    assert ended.stderr.count("was deleted") == 2


def test_a_job_that_is_being_cancelled_is_shown_so_and_left_alone(kubectl: Kubectl) -> None:
    job = slurmjob()
    job["metadata"]["annotations"] = {CANCEL: REQUESTED}
    kubectl.answers("job", job)
    kubectl.answers("jobs", [job])
    assert "(Cancelling)" in run(kubectl, "queue").stdout
    assert "is being cancelled" in run(kubectl, "suspend", "train-abc12").stderr
    assert run(kubectl, "cancel", "--all").stdout == ""


@pytest.mark.parametrize(("names", "shown"), [(["nosuch"], 0), (["train-abc12", "nosuch"], 1)])
def test_a_job_that_is_not_there_is_one_sentence_and_fails(
    kubectl: Kubectl, names: list[str], shown: int
) -> None:
    ended = run(kubectl, "queue", "--noheader", *names)
    assert (ended.returncode, len(ended.stdout.splitlines())) == (1, shown)
    assert ended.stderr.startswith("kubectl slurm: there is no SlurmJob nosuch in namespace alice")
    assert ended.stderr.count("\n") == 1
