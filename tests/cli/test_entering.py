"""The way into a job: the same words under both ways of delivery."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_slurm.commands.into_jobs.forwards import PortPair, _served
from kubectl_slurm.slurmjobs.entering import TAINT_SLURM, JobEntry
from redbox_companion.exec_program import _parse
from redbox_resourced.kubelet.sessions.session_command import read_session_command
from tests.cli.factories import slurmjob, view
from tests.cli.harness import Kubectl, run

COMPANION: dict[str, Any] = {}
VIRTUAL: dict[str, Any] = {"spec": {"tolerations": [{"key": TAINT_SLURM}]}}


@pytest.mark.parametrize("pod", [COMPANION, VIRTUAL])
def test_a_node_and_a_task_are_named_alike_under_both_ways_of_delivery(pod: dict[str, Any]) -> None:
    words = JobEntry(view(), pod, "n2", 3).arguments(["sh", "-c", "exit 7"], stdin=False)
    assert words[: words.index("--")] == ["exec", "--quiet", "train-abc12-job"]
    program = words[words.index("--") + 1 :]
    companion, kubelet = _parse(program[1:]), read_session_command(program)
    assert (companion.node, companion.task, companion.command) == ("n2", 3, ["sh", "-c", "exit 7"])
    assert (kubelet.node, kubelet.task, kubelet.command) == ("n2", "3", ["sh", "-c", "exit 7"])


def test_a_pod_on_a_virtual_node_is_entered_as_such_where_neither_is_named() -> None:
    """Which a resourced of an older release takes, too."""
    assert JobEntry(view(), VIRTUAL).arguments(["id"], stdin=False)[-2:] == ["--", "id"]


@pytest.mark.parametrize("named", [["13_4"], ["wait-def34_4"], ["wait-def34", "--task=4"]])
def test_a_task_is_named_as_slurm_does_or_by_an_option(kubectl: Kubectl, named: list[str]) -> None:
    array = slurmjob("wait-def34", state="RUNNING", jobID="13", spec={"array": "0-9"})
    kubectl.answers("jobs", [array])
    kubectl.answers("job", array)
    ended = run(kubectl, "exec", *named, "--", "id")
    assert ended.returncode == 0, ended.stderr
    assert kubectl.calls[-1].endswith("wait-def34-job -- redbox-companion exec --task=4 -- id")


def test_a_task_of_no_array_and_two_tasks_are_refused(kubectl: Kubectl) -> None:
    kubectl.answers("job", slurmjob(state="RUNNING"))
    ended = run(kubectl, "exec", "train-abc12_4", "--", "id")
    assert (ended.returncode, "is not an array" in ended.stderr) == (2, True)
    both = run(kubectl, "exec", "train-abc12_4", "--task=5", "--", "id")
    assert (both.returncode, "leave out one of them" in both.stderr) == (2, True)
    assert not any(call.startswith("exec") for call in kubectl.calls)


def test_a_port_of_a_node_or_task_goes_through_sessions_of_it() -> None:
    pair = PortPair(1, 8888)
    assert _served(JobEntry(view(), VIRTUAL), pair) == "1:8888"
    assert _served(JobEntry(view(), VIRTUAL, node="n2"), pair) is None
    assert _served(JobEntry(view(), VIRTUAL, task=0), pair) is None


def test_an_array_has_no_port_of_its_own(kubectl: Kubectl) -> None:
    kubectl.answers("job", slurmjob(state="RUNNING", spec={"array": "0-9"}))
    ended = run(kubectl, "forward", "train-abc12", "8888")
    assert (ended.returncode, "--task INDEX" in ended.stderr) == (2, True)
