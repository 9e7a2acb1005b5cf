"""`kubectl slurm doctor` on the bed: whatever breaks the chain, it ends with 1 and prints the cure.

tests/cli/test_doctor.py has those faults that cost too much here.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime

import pytest

from redbox.server.certificates import make_authority
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import NAMESPACE
from tests.e2e.harness.kubectl_slurm import Plugin
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_settings import put_rule_first, settings_changed
from tests.e2e.harness.waiting import eventually

Fault = Callable[[Bed], AbstractContextManager[None]]
UNREAD = f"{login_node.SUDOERS}.off"
"""sudo reads no file with a dot in its name."""
OPERATOR = ("deployment/redbox-operator", f"--namespace={NAMESPACE}")


@contextmanager
def redbox_down(bed: Bed) -> Iterator[None]:
    login = bed.host("login")
    login.kill(login_node.SERVICE)
    try:
        yield
    finally:
        login_node.start(login)


@contextmanager
def sudo_refuses(bed: Bed) -> Iterator[None]:
    """Agents that run already would go on."""
    login = bed.host("login")
    login.run("mv", login_node.SUDOERS, UNREAD)
    login_node.restart(login)
    eventually(lambda: reachable(Kubernetes(bed)) == "True", what="an operator that has seen the restart")
    try:
        yield
    finally:
        login.run("mv", UNREAD, login_node.SUDOERS)
        login_node.restart(login)


@contextmanager
def operator_away(bed: Bed) -> Iterator[None]:
    kubectl = Kubernetes(bed)
    replicas = kubectl("get", *OPERATOR, "--output=jsonpath={.spec.replicas}")
    kubectl("scale", *OPERATOR, "--replicas=0")
    pods = "app.kubernetes.io/name=redbox-operator"
    eventually(lambda: not kubectl.list("pods", NAMESPACE, labels=pods), what="an operator that is away")
    try:
        yield
    finally:
        kubectl("scale", *OPERATOR, f"--replicas={replicas}")
        kubectl("rollout", "status", *OPERATOR, "--timeout=100s")


@contextmanager
def user_denied(bed: Bed) -> Iterator[None]:
    rule = {"cluster": "bed", "namespaces": ["alice"], "roles": ["reader"]}
    with settings_changed(bed.host("login"), lambda settings: put_rule_first(settings, rule)):
        yield


@contextmanager
def authority_wrong(bed: Bed) -> Iterator[None]:
    kubectl = Kubernetes(bed)
    bundle = kubectl.get("slurmcluster", "hpc1")["spec"]["caBundle"]
    wrong = base64.b64encode(make_authority("wrong", datetime.now(UTC)).certificate).decode()
    kubectl.patch("slurmcluster", "hpc1", {"spec": {"caBundle": wrong}})
    eventually(lambda: reachable(kubectl) == "False", what="a red-box that is not trusted")
    try:
        yield
    finally:
        kubectl.patch("slurmcluster", "hpc1", {"spec": {"caBundle": bundle}})
        eventually(lambda: reachable(kubectl) == "True", what="a red-box that is trusted")


def reachable(kubectl: Kubernetes) -> str:
    conditions = kubectl.get("slurmcluster", "hpc1").get("status", {}).get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == "Reachable"), "")


@contextmanager
def quota_used_up(bed: Bed) -> Iterator[None]:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"count/slurmjobs.redbox.dev": "0"}},
    }
    kubectl = Kubernetes(bed)
    with kubectl.applied("alice", quota):
        eventually(lambda: kubectl.get("resourcequota", "none", "alice").get("status", {}).get("hard"))
        yield


@pytest.mark.parametrize(
    ("fault", "within_s", "line", "cure"),
    [
        (redbox_down, 60, "SlurmCluster hpc1|submit to hpc1", "systemctl status redbox"),
        (sudo_refuses, 60, "submit to hpc1: .*sudo", "redbox check"),
        (operator_away, 15, "submit to hpc1: the operator has not seen", "deployment/redbox-operator"),
        (quota_used_up, 60, "quota none: count/slurmjobs", "delete SlurmJobs that have ended"),
        pytest.param(
            user_denied, 60, "submit to hpc1: .*role submit", "mapping.rules", marks=pytest.mark.nightly
        ),
        pytest.param(
            authority_wrong, 60, "SlurmCluster hpc1: .*certificate", "redbox init", marks=pytest.mark.nightly
        ),
    ],
)
def test_each_fault_of_the_chain_is_a_line_with_its_cure(
    plugin: Plugin, fault: Fault, within_s: int, line: str, cure: str
) -> None:
    with fault(plugin.bed):
        ended = plugin("doctor", f"--timeout={within_s}")
    eventually(lambda: reachable(Kubernetes(plugin.bed)) == "True", what="a cluster that is well again")
    assert ended.returncode == 1, ended.stdout
    assert re.search(rf"^!! (?:{line}).*\n   cure: .*(?:{cure})", ended.stdout, re.MULTILINE), ended.stdout


def test_who_lacks_a_right_is_told_the_role(plugin: Plugin) -> None:
    ended = plugin("doctor", "--as=eve")
    assert ended.returncode == 1
    assert re.search(
        r"^!! rights: you may not create slurmjobs.*\n   cure: .*redbox-editor", ended.stdout, re.MULTILINE
    )


def test_after_all_that_a_submit_works_and_nothing_is_left(bed: Bed, plugin: Plugin) -> None:
    eventually(lambda: "ok submit to hpc1: a held job was" in plugin("doctor").stdout)
    kubectl = Kubernetes(bed)

    def left() -> list[str]:
        names = [job["metadata"]["name"] for job in kubectl.list("slurmjobs", "alice")]
        return [name for name in names if name.startswith("doctor-")]

    eventually(lambda: not left(), what="the end of the held jobs")
