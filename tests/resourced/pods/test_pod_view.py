"""What resourced keeps of a pod: ten thousand of them are in its memory, and tenants write them."""

from __future__ import annotations

import pickle

import pytest

from redbox_resourced.pods.pod_view import read_pod
from tests.resourced.pods.factories import manifest

MANY = 20_000
ENDED = {"state": {"terminated": {"exitCode": 1, **dict.fromkeys(("reason", "message"), "w" * 1_000)}}}
OWNER = {"apiVersion": "v1", "name": "n", "uid": "u", "controller": True}


@pytest.mark.parametrize("field", ["kind", "name", "uid"])
def test_what_is_kept_of_a_pod_is_bounded_however_much_its_author_wrote(field: str) -> None:
    containers = [{"name": f"c{number}", "image": f"image-{number}" * 10} for number in range(MANY)]
    key = "node.kubernetes.io/not-ready"
    kept = read_pod(
        manifest(
            containers=[{"name": "main", "image": "i" * 1_000_000}, *containers],
            initContainers=containers,
            ephemeralContainers=containers,
            readinessGates=[{"conditionType": f"example.org/{number}"} for number in range(MANY)],
            tolerations=[
                {"key": "redbox.dev/slurm", "operator": "Exists"},
                *({"key": key, "tolerationSeconds": number} for number in range(MANY)),
            ],
            metadata={"ownerReferences": [{**OWNER, "kind": "Job", field: "k" * 1_000_000}]},
            status={"ephemeralContainerStatuses": [{"name": each["name"], **ENDED} for each in containers]},
        )
    )
    assert len(pickle.dumps(kept)) < 200_000
    assert (kept.containers[0].name, len(kept.timed_tolerations)) == ("main", 16)
