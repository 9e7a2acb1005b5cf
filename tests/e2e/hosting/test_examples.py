"""The manifests of examples/hosted: jobs, accounting and tokens, and daemons that are killed under them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from tests.e2e.harness.hosted_examples import are_ready, hosted_examples, is_accounted
from tests.e2e.harness.hosted_slurm import NAMESPACE, HostedSlurm, hosting
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
ASK = """\
import json, ssl, sys, urllib.request
host, token, authority = sys.stdin.read().split("\\n", 2)
context = ssl.create_default_context(cadata=authority)
url = f"https://{host}:6820/slurm/v0.0.42/ping/"
request = urllib.request.Request(url, headers={"X-SLURM-USER-TOKEN": token})
print(urllib.request.urlopen(request, timeout=20, context=context).status)
"""
LEAVES_BEHIND = "setsid sleep 3333 & touch /tmp/left /dev/shm/left; mkdir /tmp/folder; hostname"
LEFT = "grep -lz 333[3] /proc/[0-9]*/cmdline; ls -d /tmp/left /tmp/folder /dev/shm/left; true"
AS_ALICE = ("setpriv", "--reuid=1001", "--regid=1001", "--clear-groups")
UNTIL_RELEASED = "until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done"


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def slurm(bed: Bed, request: pytest.FixtureRequest) -> Iterator[HostedSlurm]:
    """All of them, in the alphabet's order: the Accounting comes before its Controller."""
    with (
        hosting(bed, request.param, database=True) as kubernetes,
        hosted_examples(bed, kubernetes) as files,
    ):
        for body in (body for file in files for body in file):
            kubernetes.apply(json.dumps(body))
        slurm = HostedSlurm(kubernetes)
        are_ready(slurm)
        yield slurm


def test_the_commands_of_the_page_run_a_job(slurm: HostedSlurm) -> None:
    assert slurm.run("srun", "--chdir=/tmp", "hostname") in {"cpu-0", "cpu-1"}
    eventually(lambda: "hostname" in slurm.run("sacct", "--allusers"), what="the job in the accounting")


def test_a_job_of_a_user_is_accounted_and_leaves_nothing(slurm: HostedSlurm) -> None:
    job = slurm.run(
        *(*AS_ALICE, "sbatch", "--parsable", "--chdir=/tmp", "--output=/tmp/out"),
        f"--wrap={LEAVES_BEHIND}",
        pod="cpu-0",
    )
    host = slurm.reaches(job, "COMPLETED")["BatchHost"]
    assert slurm.job(job)["UserId"] == "alice(1001)"
    is_accounted(slurm, job)
    eventually(lambda: slurm.run("sh", "-c", LEFT, pod=host) == "", what="the end of what the job left")
    users = ("sacctmgr", "--noheader", "--parsable2", "show", "user", "format=User,DefaultAccount")
    eventually(lambda: "alice|default" in slurm.run(*users).splitlines(), what="the user alice")


def test_a_token_speaks_for_its_user(slurm: HostedSlurm) -> None:
    def secret(name: str, key: str) -> str:
        found = slurm.kubernetes.get("secret", name, NAMESPACE).get("data", {}).get(key, "")
        return base64.b64decode(found).decode()

    token = eventually(lambda: secret("alice-jwt-alice", "SLURM_JWT"), what="the token")
    authority = secret("api-restapi-tls", "ca.crt")
    asked = slurm.kubernetes(
        *("exec", "--stdin", f"--namespace={NAMESPACE}", "slurm-controller-0", "--", "python3", "-c", ASK),
        stdin=f"api-restapi.{NAMESPACE}.svc\n{token}\n{authority}",
    )
    assert asked.strip() == "200"


@pytest.mark.parametrize("pod", ["acct-accounting-0", "acct-database-0"])
def test_an_accounting_that_is_killed_loses_no_job(slurm: HostedSlurm, pod: str) -> None:
    """Neither the one that runs, nor one that begins meanwhile, nor those that are recorded."""
    recorded = slurm.submit("true")
    slurm.reaches(recorded, "COMPLETED")
    is_accounted(slurm, recorded)
    running = slurm.submit(UNTIL_RELEASED)
    worker = slurm.reaches(running, "RUNNING")["NodeList"]
    slurm.kubernetes.delete("pod", pod, namespace=NAMESPACE, wait=False, gracePeriodSeconds=0)
    meanwhile = slurm.submit("true")
    slurm.run("touch", f"/tmp/go-{running}", pod=worker)
    for job in (running, meanwhile):
        fields = slurm.reaches(job, "COMPLETED")
        assert (fields["Restarts"], fields["ExitCode"]) == ("0", "0:0")
    for job in (recorded, running, meanwhile):
        is_accounted(slurm, job)
    are_ready(slurm)
