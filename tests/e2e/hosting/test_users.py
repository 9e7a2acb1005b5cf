"""Users of a hosted Slurm: their lines, homes and accounts, changed under running pods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_examples import are_ready, hosted_examples
from tests.e2e.harness.hosted_logins import HostedLogins, new_key_pair, open_logins
from tests.e2e.harness.hosted_slurm import CLUSTER, NAMESPACE, SLURMCTLD, HostedSlurm, hosting
from tests.e2e.harness.kubernetes import Object
from tests.e2e.harness.volumes import NODE, claim_of_all
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
HOMES = f"{NAMESPACE}-homes"
USERS = [("alice", 2001), ("bob", 2002)]
BROKEN = """\
root:x:2100:2100::/home/root:/bin/bash
low:x:12:12::/home/low:/bin/bash
a/b:x:2101:2101::/home/ab:/bin/bash
up:x:2102:2102::/home/../../etc/up:/bin/bash
half:x
nul:x:2104:2104:\0:/home/nul:/bin/bash
"""
LONG = f"long:x:2105:2105:{'x' * 4096}:/home/long:/bin/bash\n"
TWICE = "alice:x:2103:2103::/home/alice2:/bin/bash\n"
WITHIN_S = 30.0
LIMITS = "AccountingStorageEnforce=associations,limits,qos\nPriorityType=priority/multifactor\n"
ASSOCIATIONS = (
    "sacctmgr",
    "--noheader",
    "--parsable2",
    "show",
    "associations",
    "format=User,Account,QOS,MaxJobs",
)


def people(*users: tuple[str, int]) -> Object:
    """The broken lines are first: libnss-extrausers itself would find no user behind them."""
    passwd = "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\n" for name, uid in users)
    groups = "".join(f"{name}:x:{uid}:\n" for name, uid in users)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "people", "namespace": NAMESPACE},
        "data": {"passwd": BROKEN + LONG + passwd + TWICE, "group": f"{groups}physics:x:3000:alice,bob\n"},
    }


@pytest.fixture(scope="module")
def homes(bed: Bed) -> Path:
    """The folder of the claim; for everybody to write, as many storage classes leave it."""
    return bed.places.home(bed.host(NODE).spec.cluster) / HOMES


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def logins(bed: Bed, request: pytest.FixtureRequest) -> Iterator[HostedLogins]:
    key = new_key_pair()
    with (
        hosting(bed, request.param, database=True) as kubernetes,
        hosted_examples(bed, kubernetes) as files,
    ):
        claim_of_all(bed, NAMESPACE, HOMES)
        keys = dict.fromkeys(("alice", "bob", "carol", "erin"), key.public)
        named = {"metadata": {"name": "people-keys", "namespace": NAMESPACE}, "data": keys}
        kubernetes.apply(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", **named}))
        for body in (body for file in files for body in file):
            kubernetes.apply(json.dumps(with_homes(body)))
        slurm = HostedSlurm(kubernetes)
        are_ready(slurm)
        yield open_logins(slurm, key)
    kubernetes.delete("persistentvolume", HOMES)


def with_homes(body: Object) -> Object:
    if body["kind"] == "Controller":
        body["spec"]["redbox"]["homes"] = {"claimName": HOMES}
    if body["kind"] == "LoginSet":
        body["spec"]["replicas"] = 1
    return people(*USERS) if body["kind"] == "ConfigMap" else body


def pods_of(slurm: HostedSlurm) -> dict[str, tuple[str, int]]:
    """The uid and the restarts of each pod that has users."""
    roles = "slurm.redbox.dev/role in (slurmctld,slurmd,slurmdbd,login)"
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(each["restartCount"] for each in pod["status"]["containerStatuses"]),
        )
        for pod in slurm.kubernetes.list("pod", NAMESPACE, labels=roles)
    }


def associations(slurm: HostedSlurm) -> list[list[str]]:
    return [line.split("|") for line in slurm.run(*ASSOCIATIONS).splitlines()]


def answer_of(logins: HostedLogins, user: str, command: str) -> str:
    """Of a user who may not be there yet."""
    try:
        return logins.ssh(command, user=user)
    except BedError:
        return ""


def test_broken_lines_are_named_and_the_others_count(logins: HostedLogins) -> None:
    status, message = logins.slurm.condition("controller", CLUSTER, "UsersValid")
    assert status == "False"
    assert [each.partition(" is ")[0] for each in message.split("; ")] == [
        "passwd line 1: the name root",
        "passwd line 2: the uid 12",
        "passwd line 3: the name 'a/b'",
        "passwd line 4: the home '/home/../../etc/up'",
        "passwd line 5: it has 2 fields, and NAME:x:UID:GID:COMMENT:HOME:SHELL has 7",
        "and 3 more",
    ]
    assert logins.slurm.condition("controller", CLUSTER, "Ready")[0] == "True"
    assert logins.ssh("id -un; id -Gn") == "alice\nalice physics"


def test_a_home_is_its_users_on_all_pods(logins: HostedLogins) -> None:
    assert logins.ssh("stat -c '%U %G %a' . && pwd").split() == ["alice", "alice", "700", "/home/alice"]
    logins.ssh("echo from-login > data")
    assert logins.ssh("srun sh -c 'cat data; echo from-job > result; pwd'").split() == [
        "from-login",
        "/home/alice",
    ]
    assert logins.ssh("cat result") == "from-job"
    for hostile in (
        "cat /home/alice/data",
        "rmdir /home/alice",
        "mv /home/alice /home/bobs",
        "mkdir /home/carol",
    ):
        with pytest.raises(BedError, match=r"Permission denied|Operation not permitted|not empty"):
            logins.ssh(hostile, user="bob")


def test_a_new_user_comes_with_a_home_and_an_account_and_no_pod_restarts(logins: HostedLogins) -> None:
    slurm, before = logins.slurm, pods_of(logins.slurm)
    slurm.kubernetes.apply(json.dumps(people(*USERS, ("carol", 2003))))
    eventually(
        lambda: answer_of(logins, "carol", "pwd; stat -c %U .") == "/home/carol\ncarol",
        WITHIN_S,
        what="the home of carol",
    )
    assert logins.ssh("srun id -un", user="carol") == "carol"
    eventually(lambda: ["carol", "default"] in [row[:2] for row in associations(slurm)], WITHIN_S)
    for pod in before:
        assert slurm.run("id", "-u", "carol", pod=pod) == "2003"
    assert pods_of(slurm) == before
    assert slurm.condition("controller", CLUSTER, "HomesValid")[0] == "True"
    jobs = slurm.kubernetes.list("job", NAMESPACE)
    eventually(lambda: len(slurm.kubernetes.list("job", NAMESPACE)) == 1, what="the end of the Job before")
    assert jobs


def test_what_is_planted_under_a_new_home_is_left_and_named(logins: HostedLogins, homes: Path) -> None:
    """By whoever manages the volume: users cannot write there."""
    slurm = logins.slurm
    (homes / "dave").symlink_to("/home/alice")
    slurm.kubernetes.apply(json.dumps(people(*USERS, ("carol", 2003), ("dave", 2004))))
    eventually(
        lambda: "/home/dave is no folder" in slurm.condition("controller", CLUSTER, "HomesValid")[1],
        what="the link in the condition",
    )
    assert (homes / "alice").stat().st_uid == USERS[0][1]


def test_users_have_accounts_and_the_limits_of_an_administrator_stay(logins: HostedLogins) -> None:
    slurm = logins.slurm
    found = {tuple(row[:2]) for row in associations(slurm) if row[0]}
    assert found >= {("alice", "default"), ("bob", "default"), ("alice", "physics"), ("bob", "physics")}
    slurm.change("controller", CLUSTER, {"extraConf": LIMITS})
    eventually(
        lambda: "AccountingStorageEnforce = associations,limits,qos" in config(slurm), what="enforcement"
    )
    slurm.run("sacctmgr", "-i", "modify", "user", "alice", "account=default", "set", "MaxJobs=1")
    first, second = (logins.ssh("sbatch --parsable --wrap 'sleep 600'") for _ in range(2))
    job = slurm.reaches(first, "RUNNING")
    assert (job["Account"], job["QOS"]) == ("default", "normal")
    slurm.kubernetes.apply(json.dumps(people(*USERS, ("carol", 2003), ("erin", 2005))))
    eventually(
        lambda: ["erin", "default"] in [row[:2] for row in associations(slurm)], what="the account of erin"
    )
    assert ["alice", "default", "normal", "1"] in associations(slurm)
    assert (
        eventually(lambda: answer_of(logins, "erin", "srun id -un"), WITHIN_S, what="a job of erin") == "erin"
    )
    eventually(lambda: slurm.job(second)["Reason"] == "AssocMaxJobsLimit", what="the limit of alice")
    other = logins.ssh("sbatch --parsable --account=physics --wrap 'sleep 1'")
    assert slurm.reaches(other, "COMPLETED")["Account"] == "physics"
    with pytest.raises(BedError, match="Invalid account"):
        logins.ssh("sbatch --account=root --wrap true")
    logins.ssh(f"scancel {first} {second}")
    slurm.reaches(second, "CANCELLED")


def config(slurm: HostedSlurm) -> str:
    return " ".join(slurm.run("scontrol", "show", "config", pod=SLURMCTLD).split())
