"""A companion whose token the kubelet renews, with the shortest life that Kubernetes allows: ten minutes.

It takes thirteen, so it runs only where REDBOX_TOKEN_RENEWAL is set.
"""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime
from typing import Any

import pytest

from redbox_bed.bed import Bed
from redbox_shared.pod_contract import TOKEN_FILE, TOKEN_FOLDER
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, follow

SHORTEST_LIFE_S = 600  # the API server refuses less
OUTLIVED_BY_S = 100  # red-box gives clocks 30 s, and looks at followed logs every minute
PAUSE_S = 5
LINES = (SHORTEST_LIFE_S + OUTLIVED_BY_S) // PAUSE_S + 1
SHOW = f"import pathlib; print(pathlib.Path('{TOKEN_FOLDER}/{TOKEN_FILE}').read_text())"

pytestmark = [
    pytest.mark.timeout(2 * SHORTEST_LIFE_S),
    pytest.mark.skipif(
        not os.environ.get("REDBOX_TOKEN_RENEWAL"), reason="thirteen minutes: set REDBOX_TOKEN_RENEWAL=1"
    ),
]


def test_a_companion_reads_on_when_the_token_that_it_began_with_has_expired(
    jobs: SlurmJobs, bed: Bed
) -> None:
    job = jobs.apply(
        f"for i in $(seq {LINES}); do echo line $i; sleep {PAUSE_S}; done",
        namespace="bob",
        resources={"time": "15"},
    )
    job.starts()
    pod = second_companion(job)
    first_expires = expiry(job, pod)
    with follow(job, bed, pod) as reader:
        out, _ = reader.communicate(timeout=1.5 * SHORTEST_LIFE_S)
    assert out.splitlines() == [f"line {number}" for number in range(1, LINES + 1)]
    ended = datetime.fromisoformat(job.finishes()["endedAt"]).timestamp()
    assert ended > first_expires + OUTLIVED_BY_S / 2


def second_companion(job: Applied) -> str:
    """One more of the same job, made as the first but for its token's life. Two do no harm."""
    made: dict[str, Any] = json.loads(job("get", "pod", job.pod, "--output=json"))
    spec = made["spec"]
    del spec["nodeName"]
    (token,) = [volume for volume in spec["volumes"] if volume["name"] == "token"]
    token["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] = SHORTEST_LIFE_S
    metadata = {"name": f"{job.name}-again", "namespace": job.namespace}
    metadata["ownerReferences"] = made["metadata"]["ownerReferences"]
    job.kubectl.apply(json.dumps({**made, "metadata": metadata, "status": {}}))
    job("wait", "pod", f"{job.name}-again", "--for=condition=Ready", "--timeout=60s")
    return f"{job.name}-again"


def expiry(job: Applied, pod: str) -> float:
    """When the token in it expires."""
    claims = job("exec", pod, "--", "python3", "-c", SHOW).split(".")[1]
    return float(json.loads(base64.urlsafe_b64decode(claims + "=="))["exp"])
