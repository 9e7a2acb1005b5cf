"""Accountings at the API server of the tests: in any order, with each kind of database, and added later."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from itertools import permutations
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.controllers.accountings.accountings import Accountings
from redbox_hosting.controllers.accountings.reporting_clusters import ReportingClusters
from redbox_kube.api import kinds
from tests.hosting.controllers.access_bench import AccessBench, at
from tests.hosting.controllers.access_bench import bench as running_bench

REF = {"accountingRef": {"name": "acct"}}
KEYS = {"slurmKeyRef": {"name": "keys", "key": "slurm"}, "jwtKeyRef": {"name": "keys", "key": "jwt"}}
MANAGED = {"redbox": {"database": {"enabled": True}}}
OUTSIDE = {"host": "db.example.org", "passwordKeyRef": {"name": "db", "key": "password"}}
LOG = "/api/v1/namespaces/hpc/pods/slurm-controller-0/log"
WRONG_ID = (
    "[2026-01-01T00:00:00.000] fatal: CLUSTER ID MISMATCH.\nslurmctld has been started with "
    '"ClusterID=1340"  from the state files in StateSaveLocation, but the DBD thinks it should be "2600".\n'
)


@pytest.fixture
async def bench() -> AsyncIterator[AccessBench]:
    async with running_bench() as made:
        yield made


def put_controller(bench: AccessBench, name: str = "slurm", /, **spec: Any) -> None:
    bench.put(names.CONTROLLERS, name, **{**REF, **spec})


def put_accounting(bench: AccessBench, **spec: Any) -> None:
    bench.put(names.ACCOUNTINGS, "acct", **(spec or MANAGED))


def conf(bench: AccessBench, name: str = "slurm") -> str:
    return str(bench.api.objects[at(kinds.CONFIG_MAP, f"{name}-config")]["data"]["slurm.conf"])


def stateful_set(bench: AccessBench, name: str = "acct-accounting") -> dict[str, Any]:
    return dict(bench.api.objects[at(kinds.STATEFUL_SET, name)])


def digest(bench: AccessBench) -> str:
    template = stateful_set(bench)["spec"]["template"]["metadata"]
    return str(template["annotations"][names.ANNOTATION_CONFIG_HASH])


async def is_ready(bench: AccessBench, kind: kinds.Kind = names.ACCOUNTINGS, name: str = "acct") -> None:
    await bench.has(lambda: bench.condition(kind, name).get("status") == "True")


async def says(bench: AccessBench, text: str, condition: str = "Ready") -> None:
    await bench.has(lambda: text in bench.says(names.ACCOUNTINGS, "acct", condition))


OBJECTS: dict[str, Callable[[AccessBench], None]] = {
    "controller": lambda bench: put_controller(bench, redbox={"tokens": {"users": ["alice"]}}),
    "accounting": put_accounting,
    "restapi": lambda bench: bench.put(names.REST_APIS, "api", controllerRef={"name": "slurm"}),
    "token": lambda bench: bench.put(names.TOKENS, "t", username="alice", lifetime="1h"),
}


@pytest.mark.parametrize("order", list(permutations(OBJECTS)), ids=" ".join)
async def test_the_order_of_apply_does_not_matter(bench: AccessBench, order: tuple[str, ...]) -> None:
    for name in order:
        OBJECTS[name](bench)
        await bench.settled()
    bench.register("slurm")
    await is_ready(bench)
    await is_ready(bench, names.REST_APIS, "api")
    await is_ready(bench, names.TOKENS, "t")
    assert "AccountingStorageHost=acct-accounting\n" in conf(bench)
    assert "DbdHost=acct-accounting-0\n" in bench.secret("acct-accounting")["slurmdbd.conf"]
    assert not bench.condition(names.ACCOUNTINGS, "acct", "Observed")


async def test_slurmdbd_starts_before_any_slurmctld_answers(bench: AccessBench) -> None:
    put_accounting(bench)
    await says(bench, "a Controller that names it in spec.accountingRef")
    assert not bench.is_there(kinds.STATEFUL_SET, "acct-accounting")
    put_controller(bench)
    await bench.has(lambda: bench.is_there(kinds.STATEFUL_SET, "acct-accounting"))
    await says(bench, "slurmctld to register with slurmdbd: hpc_slurm")
    bench.register("slurm")
    await is_ready(bench)


async def test_slurmdbd_does_not_wait_for_its_database_to_start(bench: AccessBench) -> None:
    bench.has_kubelet = False
    put_accounting(bench)
    put_controller(bench)
    await bench.has(lambda: bench.is_there(kinds.STATEFUL_SET, "acct-accounting"))
    await says(bench, "acct-database to be ready; acct-accounting to be ready")


async def test_a_database_is_made_with_a_password_that_is_in_secrets_only(bench: AccessBench) -> None:
    put_accounting(bench)
    put_controller(bench)
    bench.register("slurm")
    await is_ready(bench)
    password = bench.secret("acct-database")["password"]
    assert len(password) >= 32
    assert f"StoragePass={password}\n" in bench.secret("acct-accounting")["slurmdbd.conf"]
    bare = [body for where, body in bench.api.objects.items() if where.kind is not kinds.SECRET]
    assert password not in json.dumps(bare)
    assert stateful_set(bench, "acct-database")["spec"]["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }


async def test_a_database_is_open_to_the_slurmdbd_of_its_own_accounting_alone(bench: AccessBench) -> None:
    put_accounting(bench)
    put_controller(bench)
    bench.register("slurm")
    await is_ready(bench)
    policy = bench.api.objects[at(kinds.NETWORK_POLICY, "acct-database")]["spec"]
    own = stateful_set(bench)["spec"]["template"]["metadata"]["labels"]
    slurmdbd, backup = (each["podSelector"]["matchLabels"] for each in policy["ingress"][0]["from"])
    assert slurmdbd.items() <= own.items()
    assert backup == {names.LABEL_CLUSTER: "slurm", names.LABEL_ROLE: "backup"}
    database = stateful_set(bench, "acct-database")["spec"]["selector"]
    assert policy["podSelector"] == database
    assert not bench.is_there(kinds.NETWORK_POLICY, "slurm-mariadb"), "it would add all others"


async def test_an_external_database_is_used_and_none_is_made(bench: AccessBench) -> None:
    put_accounting(bench, storageConfig=OUTSIDE)
    put_controller(bench)
    await says(bench, "there is no Secret db in the namespace: create it")
    bench.put_secret("db", password="s3cret")
    await bench.has(lambda: bench.is_there(kinds.SECRET, "acct-accounting"))
    text = bench.secret("acct-accounting")["slurmdbd.conf"]
    assert "StorageHost=db.example.org\n" in text
    assert "StoragePass=s3cret\n" in text
    assert not bench.is_there(kinds.STATEFUL_SET, "acct-database")
    bench.register("slurm")
    await is_ready(bench)


async def test_a_password_that_would_be_another_line_is_refused_and_not_shown(bench: AccessBench) -> None:
    bench.put_secret("db", password="x\nPluginDir=/tmp")
    put_accounting(bench, storageConfig=OUTSIDE)
    put_controller(bench)
    await says(bench, "the database's password is refused")
    assert "PluginDir" not in json.dumps(bench.api.objects[at(names.ACCOUNTINGS, "acct")])
    assert not bench.is_there(kinds.STATEFUL_SET, "acct-accounting")


async def test_a_line_that_loads_code_is_named_and_slurmdbd_is_not_started(bench: AccessBench) -> None:
    put_accounting(bench, **MANAGED, extraConf="PluginDir=/home/eve")
    put_controller(bench)
    await says(bench, "PluginDir is refused", "Slurmdbd")
    assert not bench.is_there(kinds.STATEFUL_SET, "acct-accounting")


async def test_slurmdbd_is_replaced_when_what_it_reads_at_its_start_changes(bench: AccessBench) -> None:
    bench.put_secret("keys", slurm="a" * 32, jwt="b" * 32)
    bench.api.put(at(kinds.CONFIG_MAP, "idp"), data={"jwks": "{}"})
    bench.put_secret("db", password="one")
    put_accounting(bench, storageConfig=OUTSIDE, jwksKeyRef={"name": "idp", "key": "jwks"})
    put_controller(bench, **KEYS)
    await bench.has(lambda: bench.is_there(kinds.STATEFUL_SET, "acct-accounting"))
    changes: list[Callable[[], object]] = [
        lambda: bench.put_secret("db", password="two"),
        lambda: bench.put_secret("keys", slurm="c" * 32, jwt="b" * 32),
        lambda: bench.put_secret("keys", slurm="c" * 32, jwt="d" * 32),
        lambda: bench.api.put(at(kinds.CONFIG_MAP, "idp"), data={"jwks": '{"keys": []}'}),
    ]
    for change in changes:
        before = digest(bench)
        change()
        bench.reconcile_all()
        await bench.has(lambda before=before: digest(bench) != before)  # type: ignore[misc]
    before = digest(bench)
    await bench.settled()
    assert digest(bench) == before


async def test_its_own_image_says_which_release_slurmdbd_is(bench: AccessBench) -> None:
    put_accounting(bench, **MANAGED, slurmdbd={"image": "registry.example.org/redbox-slurm:26.05"})
    put_controller(bench, slurmctld={"image": "registry.example.org/redbox-slurm:24.11"})
    bench.register("slurm")
    await is_ready(bench)
    (daemon,) = stateful_set(bench)["spec"]["template"]["spec"]["containers"]
    assert daemon["image"].endswith(":26.05")
    assert daemon["readinessProbe"]["tcpSocket"] == {"port": 6819}  # of no release is HTTP served there
    assert bench.api.objects[at(names.ACCOUNTINGS, "acct")]["status"]["version"] == "26.05"


# ------------------------------------------------------------------------- a slurmdbd that runs elsewhere


async def test_an_external_slurmdbd_is_reported_to_and_gets_the_users(bench: AccessBench) -> None:
    bench.put_secret("keys", slurm="a" * 32, jwt="b" * 32)
    bench.api.put(at(kinds.CONFIG_MAP, "people"), data={"passwd": "alice:x:1001:1001::/home/alice:/bin/sh\n"})
    put_accounting(bench, external=True, externalConfig={"host": "dbd.example.org", "port": 7819})
    put_controller(bench, **KEYS, redbox={"users": {"configMapRef": {"name": "people"}}})
    await says(bench, "slurmctld to register with slurmdbd: hpc_slurm")
    bench.register("slurm")
    await is_ready(bench)
    assert "AccountingStorageHost=dbd.example.org\nAccountingStoragePort=7819\n" in conf(bench)
    assert bench.slurmdbd.users == {"alice": {("default", "hpc_slurm")}}
    assert not [name for name in bench.api.names("StatefulSet") if name.startswith("acct")]


async def test_an_external_slurmdbd_does_not_have_keys_that_the_operator_made(bench: AccessBench) -> None:
    put_accounting(bench, external=True, externalConfig={"host": "dbd.example.org", "port": 6819})
    put_controller(bench)
    await says(bench, "slurmdbd at dbd.example.org does not have the keys that the operator made for slurm")


async def test_slurmdbd_goes_once_an_accounting_becomes_external(bench: AccessBench) -> None:
    put_accounting(bench)
    put_controller(bench)
    bench.register("slurm")
    await is_ready(bench)
    put_accounting(bench, external=True, externalConfig={"host": "dbd.example.org", "port": 6819})
    await bench.has(lambda: not [name for name in bench.api.names("StatefulSet") if name.startswith("acct")])
    await bench.has(lambda: "AccountingStorageHost=dbd.example.org" in conf(bench))
    await bench.has(lambda: "version" not in bench.api.objects[at(names.ACCOUNTINGS, "acct")]["status"])


async def test_a_slurmctld_that_runs_elsewhere_reports_to_a_slurmdbd_here(bench: AccessBench) -> None:
    bench.put_secret("keys", slurm="a" * 32, jwt="b" * 32)
    put_accounting(bench)
    put_controller(bench, **KEYS, external=True, externalConfig={"host": "ctld.example.org", "port": 6817})
    await bench.has(lambda: bench.is_there(kinds.DEPLOYMENT, "slurm-control"))
    containers = bench.api.objects[at(kinds.DEPLOYMENT, "slurm-control")]["spec"]["template"]["spec"]
    assert "slurmctld,slurmdbd" in json.dumps(containers)
    bench.register("slurm")
    await is_ready(bench)


# --------------------------------------------------------------------------------------- several Controllers


async def test_clusters_with_the_same_keys_share_a_slurmdbd(bench: AccessBench) -> None:
    bench.put_secret("keys", slurm="a" * 32, jwt="b" * 32)
    put_accounting(bench)
    put_controller(bench, "a", **KEYS)
    put_controller(bench, "b", **KEYS)
    bench.register("a", "b")
    await is_ready(bench)
    policy = bench.api.objects[at(kinds.NETWORK_POLICY, "acct-accounting")]
    assert '"values": ["b"]' in json.dumps(policy["spec"]["ingress"])
    updates = bench.api.objects[at(kinds.NETWORK_POLICY, "acct-accounting-updates")]["spec"]
    assert '"values": ["b"]' in json.dumps(updates["podSelector"])
    own = stateful_set(bench)["spec"]["template"]["metadata"]["labels"]
    (peer,) = updates["ingress"][0]["from"]
    assert peer["podSelector"]["matchLabels"].items() <= own.items()


async def test_a_cluster_with_other_keys_is_named_and_stops_no_other(bench: AccessBench) -> None:
    put_accounting(bench)
    put_controller(bench, "a")
    await bench.has(lambda: bench.is_there(kinds.STATEFUL_SET, "acct-accounting"))
    put_controller(bench, "b")
    bench.register("a")
    await says(bench, "slurmdbd does not have the keys of Controller b", "Keys")
    put_accounting(bench, **MANAGED, extraConf="DebugLevel=debug")
    await bench.has(lambda: "DebugLevel=debug" in bench.secret("acct-accounting")["slurmdbd.conf"])
    await bench.has(lambda: bench.condition(names.ACCOUNTINGS, "acct", "Users").get("status") == "True")
    assert not bench.is_there(kinds.NETWORK_POLICY, "acct-accounting")


async def test_keys_of_the_accounting_that_its_controller_does_not_have_are_named(bench: AccessBench) -> None:
    bench.put_secret("keys", slurm="a" * 32, jwt="b" * 32)
    put_accounting(bench, **MANAGED, **KEYS)
    put_controller(bench)
    await says(bench, "slurmdbd does not have the keys of Controller slurm", "Keys")


async def test_slurmdbd_stays_with_its_controller_whoever_else_names_it(bench: AccessBench) -> None:
    bench.put_secret("keys", slurm="a" * 32, jwt="b" * 32)
    put_accounting(bench)
    put_controller(bench, "b", **KEYS)
    bench.register("b")
    await is_ready(bench)
    put_controller(bench, "a", **KEYS)
    bench.register("a")
    await bench.has(lambda: bench.is_there(kinds.NETWORK_POLICY, "acct-accounting"))
    await is_ready(bench)
    assert not [each for each in bench.api.requests if each.verb == "delete"]


async def test_slurmdbd_and_database_follow_when_their_controller_is_replaced(bench: AccessBench) -> None:
    put_accounting(bench)
    put_controller(bench, "old")
    bench.register("old")
    await is_ready(bench)
    password = bench.secret("acct-database")
    bench.api.remove(at(names.CONTROLLERS, "old"))
    await bench.settled()
    assert bench.is_there(kinds.STATEFUL_SET, "acct-database")
    put_controller(bench, "new")
    for name in ("acct-accounting", "acct-database"):
        await bench.has(
            lambda name=name: (
                bench.is_there(kinds.STATEFUL_SET, name)  # type: ignore[misc]
                and stateful_set(bench, name)["spec"]["selector"]["matchLabels"][names.LABEL_CLUSTER] == "new"
            )
        )
        assert ("delete", at(kinds.STATEFUL_SET, name)) in bench.api.requests
    bench.register("new")
    await is_ready(bench)
    assert bench.secret("acct-database") == password


# ---------------------------------------------------------------------------------- accounting added later


async def test_accounting_that_is_added_later_is_used(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm")
    await bench.has(lambda: bench.is_there(kinds.CONFIG_MAP, "slurm-config"))
    assert "accounting_storage/none" in conf(bench)
    put_accounting(bench)
    put_controller(bench)
    await bench.has(lambda: "AccountingStorageHost=acct-accounting" in conf(bench))
    bench.register("slurm")
    await is_ready(bench)
    assert bench.condition(names.ACCOUNTINGS, "acct", "ClusterIdMismatch")["status"] == "False"


@pytest.mark.parametrize("is_served", [True, False])
async def test_a_cluster_id_of_the_time_without_accounting_is_named_with_its_cure(
    bench: AccessBench, *, is_served: bool
) -> None:
    bench.api.logs[LOG] = WRONG_ID
    put_accounting(bench)
    put_controller(bench)
    bench.slurmdbd.is_served = is_served
    bench.register("slurm")
    bench.slurmdbd.clusters["hpc_slurm"] = ""
    await says(bench, "CLUSTER ID MISMATCH: slurmctld of slurm", "ClusterIdMismatch")
    cure = "kubectl -n hpc exec slurm-controller-0 -c slurmctld -- rm /var/spool/slurmctld/clustername"
    await says(bench, cure)
    bench.slurmdbd.is_served = True
    bench.register("slurm")
    await is_ready(bench)
    assert bench.condition(names.ACCOUNTINGS, "acct", "ClusterIdMismatch")["status"] == "False"


@pytest.mark.parametrize(("ready", "wrong"), [("False", True), ("True", False)])
async def test_a_refusal_of_the_controller_tells_of_a_cluster_id_after_its_log_is_gone(
    bench: AccessBench, ready: str, *, wrong: bool
) -> None:
    condition = {"type": "Ready", "status": ready, "reason": "R", "message": f"refused: {WRONG_ID}"}
    conditions = [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    metadata = {"name": "slurm", "namespace": "hpc", "uid": "1"}
    controller = SlurmController.model_validate(
        {"metadata": metadata, "spec": {}, "status": {"conditions": conditions}}
    )
    (cluster,) = await ReportingClusters(bench.parts[Accountings].context).read([controller], None)
    assert cluster.has_wrong_id is wrong


# ------------------------------------------------------------------------------------------------- faults


async def test_a_slurmdbd_that_is_away_is_named_and_nothing_is_deleted(bench: AccessBench) -> None:
    put_accounting(bench)
    put_controller(bench)
    bench.register("slurm")
    await is_ready(bench)
    deleted = [each for each in bench.api.requests if each.verb == "delete"]
    bench.slurmdbd.is_away = True
    bench.passes(minutes=1)
    await says(bench, "slurmctld to register with slurmdbd: hpc_slurm (slurmdbd does not answer)")
    assert [each for each in bench.api.requests if each.verb == "delete"] == deleted
    bench.slurmdbd.is_away = False
    bench.passes(minutes=1)
    await is_ready(bench)


async def test_another_key_in_the_secret_of_slurmdbd_reaches_no_pod(bench: AccessBench) -> None:
    put_accounting(bench)
    put_controller(bench)
    await bench.has(lambda: bench.is_there(kinds.STATEFUL_SET, "acct-accounting"))
    body = bench.api.objects[at(kinds.SECRET, "acct-accounting")]
    data = {**body["data"], "plugstack.conf": "eA=="}
    bench.api.put(at(kinds.SECRET, "acct-accounting"), {**body, "data": data})
    bench.api.requests.clear()
    await bench.settled()
    assert ("merge", at(kinds.SECRET, "acct-accounting")) not in bench.api.requests
    volumes = stateful_set(bench)["spec"]["template"]["spec"]["volumes"]
    assert {"key": "slurmdbd.conf", "path": "slurmdbd.conf"} in volumes[0]["projected"]["sources"][0][
        "secret"
    ]["items"]
