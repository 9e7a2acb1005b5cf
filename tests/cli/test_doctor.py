"""Every way of breaking the chain that the faults' tests know is a line of `doctor` with its cure.

test_doctor_held_job.py has the held job itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kubectl_slurm.checks import held_job
from kubectl_slurm.checks.clusters import cluster_lines
from kubectl_slurm.checks.report import Health
from kubectl_slurm.kubectl.program import Kubectl as Program
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.job import SlurmJobView
from redbox_shared.explanations.slurmjobs import SLURMJOB_REASONS
from tests.cli.factories import condition, slurmcluster, slurmjob
from tests.cli.harness import Kubectl, run
from tests.cli.redbox import RedboxInPlace, redbox_in_place

IN_A_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Fault:
    """What is broken, and what `doctor` says of it."""

    line: str
    cure: str
    kubectl: Mapping[str, str] = field(default_factory=dict)
    """What it does, by its words."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    """By the job's pod, in its log."""


def unseen(**more: Any) -> dict[str, Any]:
    """A held job that is not in Slurm."""
    return {**slurmjob("doctor-x", "Pending"), "status": more}


def on_its_way(message: str = "It is on its way to red-box.", reason: str = "Waiting") -> dict[str, Any]:
    submitted = {**condition("Submitted", "False", reason), "message": message}
    return unseen(phase="Pending", conditions=[submitted])


def refused(message: str) -> dict[str, Any]:
    ended = [condition("Finished", "True", "Failed"), condition("Submitted", "False", "Refused")]
    return unseen(phase="Failed", reason="Refused", message=message, conditions=ended)


def broken(kind: str, message: str) -> ClusterView:
    """With one condition that is False."""
    others = [condition(name, "True", "Well") for name in ("Reachable", "Current") if name != kind]
    return ClusterView(
        slurmcluster(conditions=[*others, {**condition(kind, "False", "Broken"), "message": message}])
    )


def served(**status: Any) -> dict[str, Any]:
    """A SlurmCluster for whose red-box the user may create no token."""
    spec = {"endpoint": "https://127.0.0.1:1", "caBundle": "", "audience": "redbox"}
    return {**slurmcluster(**status), "spec": spec}


@pytest.fixture
def kubectl(kubectl: Kubectl) -> Kubectl:
    kubectl.answers("clusters", [served()])
    return kubectl


def stuck_pod() -> list[dict[str, Any]]:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    return [{"metadata": {"name": "x-job"}, "status": {"containerStatuses": [{"state": waiting}]}}]


REACHABLE = "Reachable"
FAULTS = {
    "login expired": Fault(
        "!! login: the cluster does not accept your login",
        "log in again",
        {"*/version*": "echo 'error: You must be logged in to the server (Unauthorized)' >&2; exit 1"},
    ),
    "API server away": Fault(
        "!! login: the cluster does not answer",
        "wait until the cluster answers",
        {"*/version*": "echo 'Unable to connect to the server: dial tcp: i/o timeout' >&2; exit 1"},
    ),
    "no chart": Fault("!! kinds: this cluster has no slurmjobs", "Red Box's chart", {"*api-resources*": ""}),
    "no right to submit": Fault(
        "!! rights: you may not create slurmjobs.redbox.dev",
        "redbox-editor",
        {'*can-i*"create slurmjobs"*': "echo no"},
    ),
    "quota used up": Fault(
        "!! quota few: count/pods: 3 of 3 are used",
        "delete SlurmJobs that have ended",
        {"*resourcequotas*": "cat $ANSWERS/quotas"},
        {
            "quotas": [
                {
                    "metadata": {"name": "few"},
                    "status": {"used": {"count/pods": 3}, "hard": {"count/pods": 3}},
                }
            ]
        },
    ),
    "companion image missing": Fault(
        "!! images: x-job: no such image",
        "makes Red Box's image reachable",
        {'*"get --output=json pods"*': "cat $ANSWERS/pods"},
        {"pods": stuck_pod()},
    ),
    "no SlurmCluster": Fault(
        "!! SlurmClusters: none exists", "the SlurmCluster that `redbox init` prints", {}, {"clusters": []}
    ),
    "operator never ran": Fault(
        "!! operator: it has not written the status of hpc1",
        "deployment/redbox-operator",
        {},
        {"clusters": [served(conditions=[])]},
    ),
    "operator ended": Fault(
        "!! submit to hpc1: the operator has not seen SlurmJob doctor-x in 1 s",
        "deployment/redbox-operator",
        {},
        {"job": unseen()},
    ),
    "operator's rule lacks its role": Fault(
        "!! operator: red-box of hpc1 does not give it the role operator",
        "adds operator to the roles",
        {},
        {"clusters": [served(operatorRoles=["reader"])]},
    ),
    "SlurmJob refused by a policy": Fault(
        "!! submit to hpc1: Kubernetes does not allow this: you may not create pods",
        "admits SlurmJobs in this namespace",
        {
            "*create*filename*": "echo \"Error from server (Forbidden): x: ValidatingAdmissionPolicy 'p' "
            "with binding 'p' denied request: you may not create pods\" >&2; exit 1"
        },
    ),
    "user denied": Fault(
        "!! submit to hpc1: alice:default may not use this red-box",
        "adds the rule or the role",
        {},
        {"job": refused("The caller may not do this: alice:default may not use this red-box: no rule")},
    ),
    "Slurm refuses the user": Fault(
        "!! submit to hpc1: sbatch: Invalid account",
        "Fix what the message names",
        {},
        {"job": refused("This cannot work: sbatch: Invalid account or account/partition combination")},
    ),
    "sudo refused": Fault(
        "!! submit to hpc1: sudo does not allow alice",
        "redbox check",
        {},
        {"job": on_its_way()},
        "redbox: waiting for red-box: Not now: sudo does not allow alice on this host\n",
    ),
    "slurmctld away": Fault(
        "!! submit to hpc1: Slurm does not answer",
        "redbox check",
        {},
        {"job": on_its_way()},
        "redbox: waiting for red-box: Not now: Slurm does not answer: no answer within 10 s.\n",
    ),
    "slurmctld frozen": Fault(
        "!! submit to hpc1: red-box has it, and Slurm has not answered yet",
        "scontrol ping",
        {},
        {"job": on_its_way("red-box has it, and Slurm has not answered yet.")},
    ),
    "journal's disk full": Fault(
        "!! submit to hpc1: the journal cannot be written",
        "redbox check",
        {},
        {"job": on_its_way()},
        "redbox: waiting for red-box: Not now: the journal cannot be written: disk full\n",
    ),
    "red-box ended just now": Fault(
        "!! submit to hpc1: [Errno 111] Connection refused",
        "systemctl status redbox",
        {},
        {"job": on_its_way()},
        "redbox: waiting for red-box: [Errno 111] Connection refused\n",
    ),
    "kubelet starts no pod": Fault(
        "!! submit to hpc1: after 1 s: It is on its way to red-box",
        "kubectl describe pod doctor-x-job",
        {},
        {"job": on_its_way()},
    ),
}


AT_THE_CLUSTER = {
    "red-box down": (
        REACHABLE,
        "[Errno 111] Connect call failed ('10.0.0.1', 8443)",
        "systemctl status redbox",
    ),
    "login node cut off": (REACHABLE, "no connection in time", "firewall"),
    "red-box hangs": (REACHABLE, "/v1/jobs: no answer within 30 s", "journalctl -u redbox"),
    "name not in DNS": (REACHABLE, "[Errno -2] Name or service not known", "redbox init … --host"),
    "CA wrong": (
        REACHABLE,
        "certificate verify failed: self-signed certificate",
        "apply again what `redbox init` prints",
    ),
    "certificate expired": (
        REACHABLE,
        "certificate verify failed: certificate has expired",
        "renews the site's own certificate",
    ),
    "operator's token refused": (REACHABLE, "The caller is not known: unknown key", "redbox check"),
    "operator has no rule": (
        REACHABLE,
        "The caller may not do this: no mapping rule matches it",
        "mapping.rules",
    ),
    "Slurm never answered": (
        REACHABLE,
        "Not now: red-box is not ready: Slurm has never answered it, so",
        "redbox check",
    ),
    "another server answers": (
        REACHABLE,
        "HTTP 404: the response did not come from red-box",
        "how it forwards requests",
    ),
    "slurmctld away, as the polls show": (
        "Current",
        "Slurm has not answered red-box since 2026-11-24 12:00:00 UTC",
        "scontrol ping",
    ),
}
"""The condition that is False, its message, and the cure."""


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in FAULTS.items()])
def test_each_fault_is_the_only_bad_line_with_its_cure(kubectl: Kubectl, fault: Fault) -> None:
    kubectl.answers("job", slurmjob("doctor-x", "Submitted"))
    for name, document in fault.answers.items():
        kubectl.answers(name, document)
    for pattern, shell in fault.kubectl.items():
        kubectl.when(pattern, shell)
    kubectl.says(fault.said)
    ended = run(kubectl, "doctor", "--timeout=1")
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    bad = [number for number, line in enumerate(lines) if line.startswith("!!")]
    assert len(bad) == 1, ended.stdout
    assert lines[bad[0]].startswith(fault.line)
    assert lines[bad[0] + 1].startswith("   cure: ")
    assert fault.cure in lines[bad[0] + 1]


@pytest.mark.parametrize(
    ("kind", "message", "cure"), [pytest.param(*fault, id=name) for name, fault in AT_THE_CLUSTER.items()]
)
def test_each_fault_that_the_operator_sees_has_its_cure(kind: str, message: str, cure: str) -> None:
    (line,) = [
        line for line in cluster_lines(Program("none"), broken(kind, message)) if line.health is not Health.OK
    ]
    assert (line.health, line.what, line.found) == (Health.FAILED, "SlurmCluster hpc1", message)
    assert cure in line.cure


def test_who_may_not_see_slurmclusters_submits_without_naming_one(kubectl: Kubectl) -> None:
    kubectl.forgets("clusters")
    kubectl.answers("job", slurmjob("doctor-x", "Submitted"))
    ended = run(kubectl, "doctor")
    assert ended.returncode == 0, ended.stdout
    assert "cluster" not in kubectl.created["spec"]


def test_nothing_is_submitted_where_that_is_asked_for(kubectl: Kubectl) -> None:
    kubectl.answers("job", unseen())
    assert run(kubectl, "doctor", "--no-submit").returncode == 0
    assert not [call for call in kubectl.calls if " create --" in call]


@pytest.mark.parametrize("reason", SLURMJOB_REASONS)
def test_each_reason_of_a_slurmjob_has_its_cure(kubectl: Kubectl, reason: str) -> None:
    job = SlurmJobView(on_its_way(f"because {reason}", reason))
    line = held_job._found(Program(str(kubectl.program)), "submit to hpc1", job, IN_A_SECOND)
    assert (line.health, line.found) == (Health.FAILED, f"because {reason}")
    assert line.cure == SLURMJOB_REASONS[reason].cure


# ---------------------------------------------------------------------------------------------- red-box


def whoami(**more: Any) -> bytes:
    return json.dumps({"roles": ["submit"], **more}).encode()


def problem(title: str, detail: str) -> bytes:
    return json.dumps({"title": title, "detail": detail}).encode()


@pytest.mark.parametrize(
    ("status", "body", "line", "cure"),
    [
        (
            403,
            problem("The caller may not do this", "no rule matches it"),
            "no rule matches it",
            "maps namespace",
        ),
        (503, problem("Not now", "the keys are not available"), "the keys are not available", "redbox check"),
        (200, whoami(), "red-box maps it to no Unix user", "adds a rule"),
        (
            200,
            whoami(user="alice", roles=["operator"]),
            "it is alice, and may not submit",
            "adds the role submit",
        ),
        (200, b"<html>", "red-box answered 200, and no JSON object", "which server answers"),
    ],
)
def test_a_user_whom_red_box_refuses_is_not_well(  # noqa: PLR0917
    kubectl: Kubectl, tmp_path: Path, status: int, body: bytes, line: str, cure: str
) -> None:
    """Whatever the last job of the account was."""
    with redbox_in_place(tmp_path) as redbox:
        redbox.status, redbox.body = status, body
        lines = doctor_at(kubectl, redbox)
    (bad,) = [number for number, text in enumerate(lines) if text.startswith("!!")]
    assert lines[bad] == f"!! service account default on hpc1: {line}"
    assert cure in lines[bad + 1]


def doctor_at(kubectl: Kubectl, redbox: RedboxInPlace) -> list[str]:
    obj = slurmcluster()
    authority = base64.b64encode(redbox.authority).decode()
    obj["spec"] = {"endpoint": redbox.endpoint, "caBundle": authority, "audience": "redbox"}
    kubectl.answers("clusters", [obj])
    kubectl.answers("token", {})
    ended = run(kubectl, "doctor")
    assert ended.returncode == 1
    return ended.stdout.splitlines()


def test_a_service_account_that_does_not_exist_is_not_well(kubectl: Kubectl) -> None:
    kubectl.when(
        "*create*token*", "echo 'error: failed to create token: serviceaccounts \"x\" not found' >&2; exit 1"
    )
    ended = run(kubectl, "doctor")
    assert "!! service account default on hpc1: there is no serviceaccount x" in ended.stdout
    assert "cure: `kubectl get serviceaccounts" in ended.stdout
