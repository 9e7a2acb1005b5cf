"""Users of a hosted Slurm log in with ssh, and work as on any login node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_logins import LOGIN, OPTIONS, HostedLogins, new_key_pair, open_logins, write
from tests.e2e.harness.hosted_slurm import (
    CLUSTER,
    NAMESPACE,
    VERSION,
    WORKER_LIMITS,
    applied_slurm,
    hosting,
)
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
HOSTILE = """\
rm -f /run/slurm/sack.socket; touch /run/slurm/x; mkdir /run/nscd
cat /run/redbox/ssh/* /etc/redbox/host-key/*
find / -xdev -name slurm.jwks -o -name slurm.key
sinfo --noheader --Node --format=%N
"""
WITH_USERS = {
    "maxNodes": 64,
    "partitions": [{"name": "all", "default": True}],
    "users": {"configMapRef": {"name": "people"}},
}
LINES = {
    "passwd": "alice:x:2001:2001::/tmp:/bin/bash\nbob:x:2002:2002::/tmp:/bin/bash\n",
    "group": "alice:x:2001:\nbob:x:2002:\n",
}


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def logins(bed: Bed, request: pytest.FixtureRequest) -> Iterator[HostedLogins]:
    key = new_key_pair()
    with hosting(bed, request.param) as kubernetes:
        for name, data in (("people", LINES), ("people-keys", {"alice": key.public})):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
            body["metadata"]["namespace"] = NAMESPACE  # type: ignore[index]
            kubernetes.apply(json.dumps(body))
        with applied_slurm(bed, kubernetes, 2, WORKER_LIMITS, {"redbox": WITH_USERS}) as slurm:
            kubernetes.apply(json.dumps(login_set()))
            slurm.has_idle(2)
            yield open_logins(slurm, key)
            kubernetes.delete("loginsets.slurm.redbox.dev", "login", namespace=NAMESPACE)


def login_set() -> dict[str, object]:
    limits = {"resources": {"limits": {"cpu": "200m", "memory": "256Mi"}}}
    return {
        "apiVersion": VERSION,
        "kind": "LoginSet",
        "metadata": {"name": "login", "namespace": NAMESPACE},
        "spec": {
            "controllerRef": {"name": CLUSTER},
            "replicas": 2,
            "login": limits,
            "redbox": {"authorizedKeysRef": {"name": "people-keys"}},
        },
    }


def test_a_user_submits_from_each_login_pod(logins: HostedLogins) -> None:
    assert logins.ssh("id -un") == "alice"
    for host in logins.pods():
        name = host.partition(".")[0]
        on = {"host": host, "port": 2222}
        assert logins.ssh("hostname", **on) == name  # type: ignore[arg-type]
        assert logins.ssh("cd /tmp; srun sh -c 'hostname; id -un'", **on).split() in (  # type: ignore[arg-type]
            ["cpu-0", "alice"],
            ["cpu-1", "alice"],
        )
        assert logins.ssh("cd /tmp; salloc --quiet --nodes=2 srun id -un", **on).split() == ["alice"] * 2  # type: ignore[arg-type]
        job = logins.ssh("cd /tmp; sbatch --parsable --wrap='sleep 600'", **on)  # type: ignore[arg-type]
        assert logins.slurm.reaches(job, "RUNNING")["UserId"] == "alice(2001)"
        logins.ssh(f"scancel {job}", **on)  # type: ignore[arg-type]
        logins.slurm.reaches(job, "CANCELLED")


def test_files_come_in(logins: HostedLogins) -> None:
    write(logins.slurm, "/tmp/data", "42")
    logins.slurm.run(
        "scp", "-q", *OPTIONS, "-P", "2222", "/tmp/data", f"alice@{logins.pods()[0]}:/tmp/copied"
    )
    assert logins.ssh("cat /tmp/copied", host=logins.pods()[0], port=2222) == "42"


@pytest.mark.parametrize("user", ["bob", "root", "slurm", "nobody"])
def test_a_key_is_its_users_alone(logins: HostedLogins, user: str) -> None:
    with pytest.raises(BedError, match="Permission denied"):
        logins.ssh("true", user=user)


def test_a_user_has_no_key_of_slurm_and_cannot_take_the_place_of_what_signs(logins: HostedLogins) -> None:
    assert logins.ssh(f"{{ {HOSTILE} }} 2>/dev/null").split() == ["cpu-0", "cpu-1"]


def test_a_new_pod_has_the_same_host_key(logins: HostedLogins) -> None:
    before = logins.slurm.kubernetes.get("pod", f"{LOGIN}-0", NAMESPACE)["metadata"]["uid"]
    logins.slurm.kubernetes.delete("pod", f"{LOGIN}-0", namespace=NAMESPACE)

    def is_new() -> bool:
        found = logins.slurm.kubernetes.list("pod", NAMESPACE, labels="slurm.redbox.dev/role=login")
        ready = [pod for pod in found if pod["metadata"]["name"] == f"{LOGIN}-0"]
        return (
            bool(ready)
            and ready[0]["metadata"]["uid"] != before
            and all(each.get("ready") for each in ready[0]["status"].get("containerStatuses", [{}]))
        )

    eventually(is_new, what=f"a new {LOGIN}-0")
    assert logins.ssh("id -un", host=logins.pods()[0], port=2222) == "alice"
