"""What `doctor` says of resourced: by the condition that it writes, and by its nodes."""

from __future__ import annotations

import pytest

from kubectl_slurm.checks.clusters import cluster_lines, resourced
from kubectl_slurm.checks.report import CheckLine, Health
from kubectl_slurm.kubectl.program import Kubectl as Program
from kubectl_slurm.slurmjobs.clusters import ClusterView
from redbox_shared.explanations.clusters import PODS_READY_REASONS
from tests.cli.factories import condition, slurmcluster
from tests.cli.harness import Kubectl


def with_pods(status: str, reason: str) -> ClusterView:
    obj = slurmcluster()
    obj["spec"] = {"pods": {"enabled": True}}
    obj["status"]["conditions"].append({**condition("PodsReady", status, reason), "message": f"of {reason}"})
    return ClusterView(obj)


def lines_of_resourced(kubectl: Kubectl, status: str, reason: str) -> list[CheckLine]:
    view = with_pods(status, reason)
    found = list(resourced(Program(str(kubectl.program)), view))
    assert found == [line for line in cluster_lines(Program(str(kubectl.program)), view) if line in found]
    return found


@pytest.fixture
def answered(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """In this process, too."""
    monkeypatch.setenv("ANSWERS", kubectl.environment()["ANSWERS"])
    return kubectl


@pytest.mark.parametrize("reason", PODS_READY_REASONS)
def test_each_reason_without_pods_has_its_cure(answered: Kubectl, reason: str) -> None:
    status = "True" if reason.startswith("Certificate") else "False"
    (line,) = lines_of_resourced(answered, status, reason)
    runs = {"CertificateNotSigned", "CertificateExpires"}
    assert line.health is (Health.UNKNOWN if reason in runs else Health.FAILED)
    assert (line.found, line.cure) == (f"of {reason}", PODS_READY_REASONS[reason].cure)


def test_a_resourced_that_has_stopped_is_seen_by_its_nodes(answered: Kubectl) -> None:
    """Its condition stays as it was."""
    (line,) = lines_of_resourced(answered, "True", "Served")
    assert line.health is Health.OK
    ready = {"type": "Ready", "status": "Unknown"}
    answered.answers("nodes", [{"metadata": {"name": "v1"}, "status": {"conditions": [ready]}}])
    answered.when('*" nodes "*', 'cat "$ANSWERS/nodes"')
    (line,) = lines_of_resourced(answered, "True", "Served")
    assert (line.health, line.found) == (Health.FAILED, "it has stopped: node v1 is not Ready")
    assert "kubectl get pods -n redbox-system" in line.cure
