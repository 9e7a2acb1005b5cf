"""Users of a hosted Slurm log in with ssh, and work as on any login node."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_logins import (
    LOGIN,
    OPTIONS,
    HostedLogins,
    KeyPair,
    new_key_pair,
    open_logins,
    write,
)
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
    key, authority = new_key_pair(), new_key_pair()
    with hosting(bed, request.param) as kubernetes:
        for name, data in (("people", LINES), ("people-keys", {"alice": key.public})):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
            body["metadata"]["namespace"] = NAMESPACE  # type: ignore[index]
            kubernetes.apply(json.dumps(body))
        with applied_slurm(bed, kubernetes, 2, WORKER_LIMITS, {"redbox": WITH_USERS}) as slurm:
            kubernetes.apply(json.dumps(login_set(authority)))
            slurm.has_idle(2)
            opened = open_logins(slurm, key)
            write(slurm, "/tmp/authority", authority.private)
            yield opened
            kubernetes.delete("loginsets.slurm.redbox.dev", "login", namespace=NAMESPACE)


def login_set(authority: KeyPair) -> dict[str, object]:
    limits = {"resources": {"limits": {"cpu": "200m", "memory": "256Mi"}}}
    return {
        "apiVersion": VERSION,
        "kind": "LoginSet",
        "metadata": {"name": "login", "namespace": NAMESPACE},
        "spec": {
            "controllerRef": {"name": CLUSTER},
            "replicas": 2,
            "login": limits,
            "redbox": {
                "authorizedKeysRef": {"name": "people-keys"},
                "trustedUserCaKeys": authority.public,
            },
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
    host, shell = logins.pods()[0], shlex.join(("ssh", "-p", "2222", *OPTIONS))
    logins.slurm.run("scp", "-q", *OPTIONS, "-P", "2222", "/tmp/data", f"alice@{host}:/tmp/copied")
    logins.slurm.run("rsync", "-e", shell, "/tmp/data", f"alice@{host}:/tmp/synchronized")
    assert logins.ssh("cat /tmp/copied /tmp/synchronized", host=host, port=2222) == "4242"
    logins.ssh("git init --quiet --bare /tmp/repository", host=host, port=2222)
    clone = ("git", "clone", "--quiet", f"alice@{host}:/tmp/repository", "/tmp/clone")
    logins.slurm.run("env", f"GIT_SSH_COMMAND={shell}", *clone)
    assert logins.slurm.run("git", "-C", "/tmp/clone", "remote") == "origin"


def test_a_terminal_is_found_again(logins: HostedLogins) -> None:
    """The Service leads a client to the same pod."""
    logins.ssh("tmux new-session -d -s work 'sleep 600'")
    for _ in range(4):
        assert logins.ssh("tmux list-sessions -F '#S'") == "work"
    logins.ssh("tmux kill-server")


def test_what_an_editors_server_needs_is_there(logins: HostedLogins) -> None:
    """VS Code Remote fetches and unpacks its server, starts it, and connects through sshd."""
    logins.ssh("bash -c 'type tar wget' && /sbin/ldconfig -p | grep -q 'libstdc++.so.6 '")
    write(logins.slurm, "/tmp/server", "#!/bin/bash\necho runs\n")
    logins.slurm.run("scp", "-q", *OPTIONS, "/tmp/server", "alice@login-login:/tmp/server")
    assert logins.ssh("chmod 700 /tmp/server; /tmp/server; rm /tmp/server") == "runs"
    banner = logins.slurm.run("sh", "-c", f"{shlex.join(forward(logins))} </dev/null")
    assert banner.startswith("SSH-2.0-")


def forward(logins: HostedLogins) -> tuple[str, ...]:
    """sshd of the pod, through sshd."""
    return (
        "timeout",
        "10",
        "ssh",
        *OPTIONS,
        "-p",
        "2222",
        "-W",
        "127.0.0.1:2222",
        f"alice@{logins.pods()[0]}",
    )


def test_a_certificate_of_the_trusted_authority_is_for_its_user_alone(logins: HostedLogins) -> None:
    """As red-box signs them; its key is in no list."""
    script = (
        "cd /tmp; rm -f signed*; ssh-keygen -q -t ed25519 -N '' -f signed; "
        "ssh-keygen -q -s authority -I test -n alice -V +5m signed.pub"
    )
    logins.slurm.run("sh", "-c", script)
    options = [each if each != "/tmp/id" else "/tmp/signed" for each in OPTIONS]
    ssh = ("ssh", *options, "-o", "CertificateFile=/tmp/signed-cert.pub")
    assert logins.slurm.run(*ssh, f"alice@{LOGIN}", "id -un") == "alice"
    with pytest.raises(BedError, match="Permission denied"):
        logins.slurm.run(*ssh, f"bob@{LOGIN}", "id -un")


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
