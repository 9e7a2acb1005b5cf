"""The account `default` and the users of clusters: added to slurmdbd, never changed and never removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_kube.api import kinds
from tests.hosting.controllers.access_bench import AccessBench, at
from tests.hosting.controllers.access_bench import bench as running_bench

KEYS = {"slurmKeyRef": {"name": "keys", "key": "slurm"}, "jwtKeyRef": {"name": "keys", "key": "jwt"}}


@pytest.fixture
async def bench() -> AsyncIterator[AccessBench]:
    async with running_bench() as made:
        made.put(names.ACCOUNTINGS, "acct", redbox={"database": {"enabled": True}})
        yield made


def put_controller(bench: AccessBench, name: str = "slurm", /, **spec: Any) -> None:
    bench.put(names.CONTROLLERS, name, **{"accountingRef": {"name": "acct"}, **spec})


async def is_ready(bench: AccessBench) -> None:
    await bench.has(lambda: bench.condition(names.ACCOUNTINGS, "acct").get("status") == "True")


async def says(bench: AccessBench, text: str) -> None:
    await bench.has(lambda: text in bench.says(names.ACCOUNTINGS, "acct", "Users"))


def put_users(bench: AccessBench, *lines: str, groups: str = "") -> None:
    data = {"passwd": "".join(f"{line}\n" for line in lines), "group": groups}
    bench.api.put(at(kinds.CONFIG_MAP, "people"), data=data)


def passwd(user: str, uid: int = 0, gid: int = 0) -> str:
    uid = uid or 1000 + ord(user[0])
    return f"{user}:x:{uid}:{gid or uid}::/home/{user}:/bin/sh"


WITH_USERS = {"redbox": {"users": {"configMapRef": {"name": "people"}}}}


async def test_the_account_default_and_its_users_are_added(bench: AccessBench) -> None:
    put_users(bench, passwd("alice"), passwd("bob"), "nonsense", passwd("daemon", 1), passwd("n" * 300))
    put_controller(bench, **WITH_USERS)
    bench.register("slurm")
    await is_ready(bench)
    assert bench.slurmdbd.accounts == {("default", "hpc_slurm")}
    assert bench.slurmdbd.users.keys() == {"alice", "bob"}
    put_users(bench, passwd("alice"), passwd("bob"), passwd("Carol"))
    bench.reconcile_all()
    await bench.has(lambda: "carol" in bench.slurmdbd.users)
    await is_ready(bench)


async def test_what_an_administrator_has_changed_is_never_changed_back(bench: AccessBench) -> None:
    slurm = bench.slurmdbd
    slurm.users = {"alice": {("physics", "hpc_slurm")}}
    slurm.defaults = {("alice", "hpc_slurm"): "physics"}
    put_users(bench, passwd("alice"), passwd("bob"))
    put_controller(bench, **WITH_USERS)
    bench.register("slurm")
    await is_ready(bench)
    assert slurm.users["alice"] == {("physics", "hpc_slurm")}
    assert slurm.defaults == {("alice", "hpc_slurm"): "physics", ("bob", "hpc_slurm"): "default"}
    put_users(bench, passwd("alice"))
    await bench.settled()
    assert "bob" in slurm.users
    assert not [path for method, path, _ in slurm.server.requests if method == "DELETE"]


async def test_nothing_is_written_while_nothing_changes(bench: AccessBench) -> None:
    put_users(bench, passwd("Alice"))
    put_controller(bench, **WITH_USERS)
    bench.register("slurm")
    await is_ready(bench)
    written = len(bench.slurmdbd.writes)
    bench.passes(minutes=5)
    await bench.settled()
    assert len(bench.slurmdbd.writes) == written
    bench.passes(minutes=6)  # another database may be there by now
    await bench.has(lambda: len(bench.slurmdbd.writes) > written)
    assert not [each for each in bench.slurmdbd.writes[written:] if "users" in each]


async def test_users_that_slurmdbd_did_not_store_are_named(bench: AccessBench) -> None:
    bench.slurmdbd.forgets = {"bob"}
    put_users(bench, passwd("alice"), passwd("bob"))
    put_controller(bench, **WITH_USERS)
    bench.register("slurm")
    await says(bench, "slurmdbd did not take 1 users, such as bob")
    assert bench.condition(names.ACCOUNTINGS, "acct")["status"] == "False"


async def test_a_missing_config_map_of_users_stops_no_other_cluster(bench: AccessBench) -> None:
    bench.put_secret("keys", slurm="a" * 32, jwt="b" * 32)
    put_users(bench, passwd("alice"))
    put_controller(bench, "a", **KEYS, redbox={"users": {"configMapRef": {"name": "nobody"}}})
    put_controller(bench, "b", **KEYS, **WITH_USERS)
    bench.register("a", "b")
    await says(bench, "False: the condition Users of Controller a")
    await bench.has(lambda: bench.slurmdbd.users == {"alice": {("default", "hpc_b")}})
    assert "there is no ConfigMap nobody" in bench.says(names.CONTROLLERS, "a", "Users")


async def test_groups_are_accounts_of_their_members(bench: AccessBench) -> None:
    """The group of a single user is none, and a user's default account stays."""
    groups = "alice:x:1097:\nPhysics:x:3000:alice,bob,nobody-there\nchem:x:3001:\nempty:x:3002:\n"
    put_users(bench, passwd("alice"), passwd("bob"), passwd("carol", gid=3001), groups=groups)
    put_controller(bench, **WITH_USERS)
    bench.register("slurm")
    await is_ready(bench)
    accounts = {account for account, _ in bench.slurmdbd.accounts}
    assert accounts == {"default", "physics", "chem"}
    members = {user: {account for account, _ in has} for user, has in bench.slurmdbd.users.items()}
    assert members == {
        "alice": {"default", "physics"},
        "bob": {"default", "physics"},
        "carol": {"default", "chem"},
    }
    assert set(bench.slurmdbd.defaults.values()) == {"default"}
    put_users(bench, passwd("alice"), passwd("bob"), passwd("carol", gid=3001), groups="chem:x:3001:bob\n")
    await bench.has(lambda: ("chem", "hpc_slurm") in bench.slurmdbd.users["bob"])
    assert ("physics", "hpc_slurm") in bench.slurmdbd.users["bob"]
