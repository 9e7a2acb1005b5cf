"""Keys are rotated under a job, and clients are served by each move."""

from __future__ import annotations

import base64
import json

import pytest

from redbox_bed.core.errors import BedError
from redbox_bed.delivery import NAMESPACE as OPERATOR_NAMESPACE
from tests.e2e.harness.hosted_slurm import NAMESPACE, SLURMCTLD, HostedSlurm
from tests.e2e.harness.waiting import eventually
from tests.e2e.hosting.test_examples import ASK, slurm

__all__ = ["slurm"]
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
UNTIL_RELEASED = "until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done"
MOVES = ("Added", "Signs", "Signed", "Replaced", "Done")
WITHIN_S = 300


def secret(slurm: HostedSlurm, name: str, key: str) -> str:
    found = slurm.kubernetes.get("secret", name, NAMESPACE).get("data", {}).get(key, "")
    return base64.b64decode(found).decode(errors="replace")


def move(slurm: HostedSlurm, value: str) -> str:
    found = json.loads(secret(slurm, "slurm-keys", "rotation"))
    return str(found["move"]) if found["value"] == value else ""


def kids(slurm: HostedSlurm) -> list[str]:
    return [key["kid"] for key in json.loads(secret(slurm, "slurm-keys", "slurm.jwks"))["keys"]]


def answers(slurm: HostedSlurm) -> bool:
    """By the user's slurmrestd, with the token that the Secret has."""
    authority, token = (
        secret(slurm, "api-restapi-tls", "ca.crt"),
        secret(slurm, "alice-jwt-alice", "SLURM_JWT"),
    )
    try:
        asked = slurm.kubernetes(
            *("exec", "--stdin", f"--namespace={NAMESPACE}", SLURMCTLD, "--", "python3", "-c", ASK),
            stdin=f"api-restapi.{NAMESPACE}.svc\n{token}\n{authority}",
        )
    except BedError:
        return False
    return asked.strip() == "200"


def serves(slurm: HostedSlurm, job: str) -> None:
    """Commands of both pods, a launch, a token, and the job."""
    worker = slurm.job(job)["NodeList"]
    assert job in slurm.run("squeue", "--noheader", "--format=%i", pod=worker).split()
    assert slurm.run("srun", "--chdir=/tmp", "--immediate=60", "hostname") in slurm.workers()
    eventually(lambda: answers(slurm), what="an answer to the token")
    assert slurm.job(job)["JobState"] == "RUNNING"


def test_keys_are_rotated_under_a_job_by_operators_that_are_killed(slurm: HostedSlurm) -> None:
    eventually(slurm.is_ready, what="Ready")
    slurm.has_idle(2)
    eventually(lambda: secret(slurm, "alice-jwt-alice", "SLURM_JWT"), what="the token")
    job = slurm.submit(UNTIL_RELEASED)
    worker = slurm.reaches(job, "RUNNING")["NodeList"]
    serves(slurm, job)
    token = secret(slurm, "alice-jwt-alice", "SLURM_JWT")
    pods = {name: body["metadata"]["uid"] for name, body in slurm.workers().items()}
    slurm.kubernetes(
        *("annotate", f"--namespace={NAMESPACE}", "controllers.slurm.redbox.dev", "slurm"),
        "slurm.redbox.dev/rotate-keys=first",
    )
    seen: list[str] = []
    while "Done" not in seen:
        seen.append(
            eventually(
                lambda: found if (found := move(slurm, "first")) not in {"", *seen[-1:]} else None,
                WITHIN_S,
                what=f"the move after {seen}: {slurm.condition('controller', 'slurm', 'KeysRotated')}",
            )
        )
        if seen[-1] in {"Added", "Replaced"}:
            kill_operator(slurm)
        serves(slurm, job)
    assert [each for each in MOVES if each in seen][-3:] == ["Signed", "Replaced", "Done"]
    assert kids(slurm) == ["k2"]
    eventually(lambda: secret(slurm, "alice-jwt-alice", "SLURM_JWT") != token, what="a token by the new key")
    serves(slurm, job)
    slurm.run("touch", f"/tmp/go-{job}", pod=worker)
    fields = slurm.reaches(job, "COMPLETED")
    assert (fields["Restarts"], fields["ExitCode"]) == ("0", "0:0")
    assert {name: body["metadata"]["uid"] for name, body in slurm.workers().items()} == pods
    assert slurm.restarts(SLURMCTLD) == 0
    sacct = ("sacct", "--allusers", "--noheader", "--parsable2", "--format=State", f"--jobs={job}", "-X")
    eventually(lambda: slurm.run(*sacct) == "COMPLETED", what="the job in the accounting")


def kill_operator(slurm: HostedSlurm) -> None:
    for pod in slurm.kubernetes.list(
        "pod", OPERATOR_NAMESPACE, labels="app.kubernetes.io/name=redbox-hosting"
    ):
        name = pod["metadata"]["name"]
        slurm.kubernetes.delete("pod", name, namespace=OPERATOR_NAMESPACE, gracePeriodSeconds=0)
