from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.factories import slurmcluster, slurmjob
from tests.cli.harness import Kubectl

QUEUED = [
    slurmjob(
        "train-abc12",
        state="RUNNING",
        nodes=["n1", "n2"],
        nodeList="n[1-2]",
        startedAt="2026-11-24T12:00:00Z",
    ),
    slurmjob(
        "wait-def34", "Submitted", jobID="13", state="PENDING", reason="Priority", spec={"array": "0-9"}
    ),
    slurmjob("new-ghi56", "Pending", jobID=None, partition=None, user=None, reason="NoSuchCluster"),
    slurmjob("done-jkl78", "Succeeded", jobID="11", state="COMPLETED", exitCode=0),
]


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """With three jobs in the queue, one that has ended, and a SlurmCluster."""
    kubectl = Kubectl(tmp_path)
    kubectl.answers("jobs", QUEUED)
    kubectl.answers("job", QUEUED[0])
    kubectl.answers("clusters", [slurmcluster()])
    return kubectl
