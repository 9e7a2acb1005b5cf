"""What `doctor` says of resourced, by the condition that it writes."""

from __future__ import annotations

import pytest

from kubectl_slurm.commands.doctor import Health, _resourced
from kubectl_slurm.slurmjobs.clusters import ClusterView


def cluster(status: str, reason: str) -> ClusterView:
    condition = {"type": "PodsReady", "status": status, "reason": reason, "message": f"because {reason}"}
    return ClusterView(
        {
            "kind": "SlurmCluster",
            "metadata": {"name": "hpc1"},
            "spec": {"pods": {"enabled": True}},
            "status": {"conditions": [condition]},
        }
    )


@pytest.mark.parametrize(
    ("status", "reason", "health"),
    [
        ("True", "Served", Health.WELL),
        ("True", "CertificateNotSigned", Health.UNKNOWN),
        ("True", "CertificateExpires", Health.UNKNOWN),
        ("True", "CertificateExpired", Health.NOT_WELL),
        ("False", "NotServed", Health.NOT_WELL),
    ],
)
def test_the_end_of_the_serving_certificate_is_a_line(status: str, reason: str, health: Health) -> None:
    (line,) = _resourced(cluster(status, reason))
    assert (line.health, line.what, line.found) == (health, "resourced", f"because {reason}")
