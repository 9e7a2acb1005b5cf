"""The manifests of examples/hosted, as docs/administrators/hosted-slurm.md applies them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from tests.e2e.harness.hosted_slurm import NAMESPACE, HostedSlurm, hosting
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.volumes import volume_of
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
EXAMPLES = CHECKOUT / "examples/hosted"
STORAGE = f"{NAMESPACE}-examples"
KINDS = ("tokens", "restapis", "loginsets", "nodesets", "accountings", "controllers")
ASK = """\
import json, ssl, sys, urllib.request
host, token, authority = sys.stdin.read().split("\\n", 2)
context = ssl.create_default_context(cadata=authority)
url = f"https://{host}:6820/slurm/v0.0.42/ping/"
request = urllib.request.Request(url, headers={"X-SLURM-USER-TOKEN": token})
print(urllib.request.urlopen(request, timeout=20, context=context).status)
"""


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def slurm(bed: Bed, request: pytest.FixtureRequest) -> Iterator[HostedSlurm]:
    """All of them, in the alphabet's order: the Accounting comes before its Controller."""
    with hosting(bed, request.param, database=True) as kubernetes:
        for volume in ("state", "data"):
            volume_of(bed, f"{STORAGE}-{volume}", storageClassName=STORAGE, capacity={"storage": "16Gi"})
        for example in sorted(EXAMPLES.glob("*.yaml")):
            for body in yaml.safe_load_all(example.read_text()):
                _apply(kubernetes, body)
        yield HostedSlurm(kubernetes)
        for kind in KINDS:
            for body in kubernetes.list(f"{kind}.slurm.redbox.dev", NAMESPACE):
                kubernetes.delete(f"{kind}.slurm.redbox.dev", body["metadata"]["name"], namespace=NAMESPACE)
        kubernetes.delete(
            "persistentvolume", *(f"{STORAGE}-{each}" for each in ("state", "data")), wait=False
        )


def _apply(kubernetes: Kubernetes, body: Object) -> None:
    """The bed has no default StorageClass, and few cores."""
    if body["kind"] == "Controller":
        body["spec"]["persistence"] = {"storageClassName": STORAGE}
    if body["kind"] == "Accounting":
        body["spec"]["redbox"]["database"]["storageClassName"] = STORAGE
    if body["kind"] == "NodeSet":
        body["spec"]["slurmd"]["resources"]["limits"] = {"cpu": "100m", "memory": "512Mi"}
    if body["kind"] == "LoginSet":
        body["spec"]["login"]["resources"]["limits"] = {"cpu": "100m", "memory": "256Mi"}
    body["metadata"]["namespace"] = NAMESPACE
    kubernetes.apply(json.dumps(body))


def test_all_are_ready(slurm: HostedSlurm) -> None:
    for kind, name in (
        ("controller", "slurm"),
        ("accounting", "acct"),
        ("restapi", "api"),
        ("loginset", "login"),
    ):
        eventually(
            lambda kind=kind, name=name: slurm.condition(kind, name, "Ready")[0] == "True",  # type: ignore[misc]
            what=f"Ready of {kind} {name}",
        )
    slurm.has_idle(2)


def test_a_job_of_a_user_is_accounted(slurm: HostedSlurm) -> None:
    job = slurm.submit("hostname; id -un", "--output=/tmp/out")
    host = slurm.reaches(job, "COMPLETED")["BatchHost"]
    assert slurm.run("cat", "/tmp/out", pod=host).split()[0] == host
    sacct = ("sacct", "--allusers", "--noheader", "--parsable2", "--format=State", f"--jobs={job}", "-X")
    eventually(lambda: slurm.run(*sacct) == "COMPLETED", what="the job in the accounting")
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
