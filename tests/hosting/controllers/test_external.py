"""A Controller whose slurmctld runs elsewhere: only control is made, with the keys that the spec names."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest

from redbox_hosting.api import names
from redbox_hosting.controllers.clusters.controller_status import status_of
from redbox_hosting.controllers.clusters.slurm_controllers import SlurmControllers
from redbox_hosting.slurm.errors import SlurmUnreachable, TokenRefused
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object
from redbox_kube.controller.steps import StepFailed
from tests.hosting.controllers.cluster_bench import Bench, ScriptedSlurm, controller
from tests.hosting.controllers.controller_bench import (
    SLURM,
    api,
    at,
    change,
    condition,
    eventually,
    operator,
)
from tests.kube.fakes import FakeApiServer

__all__ = ["api", "operator"]
KEYS = {
    "slurmKeyRef": {"name": "theirs", "key": "slurm.key"},
    "jwtKeyRef": {"name": "theirs", "key": "jwt_hs256.key"},
}


def external(host: str = "ctl.example.org", **more: object) -> dict[str, object]:
    return {"external": True, "externalConfig": {"host": host, "port": 26817}, **KEYS, **more}


def put_keys(api: FakeApiServer) -> None:
    data = {key: base64.b64encode(b"k" * 32).decode() for key in ("slurm.key", "jwt_hs256.key")}
    api.put(at(kinds.SECRET, "theirs"), data=data)


def template_of(api: FakeApiServer) -> Object:
    return dict(api.objects[at(kinds.DEPLOYMENT, "slurm-control")]["spec"]["template"])


def conf_of(api: FakeApiServer) -> str:
    return str(api.objects[at(kinds.CONFIG_MAP, "slurm-config")]["data"]["slurm.conf"])


async def test_only_control_is_made_and_no_key(api: FakeApiServer) -> None:
    put_keys(api)
    api.put(SLURM, spec=external())
    await eventually(lambda: at(kinds.DEPLOYMENT, "slurm-control") in api.objects)
    assert api.names("StatefulSet") == []
    assert api.names("Secret") == ["slurm-authority", "slurm-control-tls", "theirs"]
    assert "SlurmctldHost=ctl.example.org\nSlurmctldPort=26817\n" in conf_of(api)
    await eventually(lambda: "slurm-control to be ready" in condition(api, "Ready").get("message", ""))


async def test_another_address_replaces_control(api: FakeApiServer) -> None:
    put_keys(api)
    api.put(SLURM, spec=external())
    await eventually(lambda: at(kinds.DEPLOYMENT, "slurm-control") in api.objects)
    before = template_of(api)
    change(api, external("other.example.org"))
    await eventually(lambda: template_of(api) != before)
    assert "SlurmctldHost=other.example.org" in conf_of(api)


async def test_a_missing_secret_is_named(api: FakeApiServer) -> None:
    api.put(SLURM, spec=external())
    await eventually(lambda: condition(api, "Degraded").get("status") == "True")
    assert condition(api, "Keys")["message"] == "there is no Secret theirs in the namespace: create it"


async def test_slurmrestd_is_told_of_the_accounting(api: FakeApiServer) -> None:
    put_keys(api)
    storage = {"host": "db", "database": "slurm", "username": "slurm"}
    storage["passwordKeyRef"] = {"name": "db", "key": "password"}  # type: ignore[assignment]
    api.put(at(names.ACCOUNTINGS, "acct"), spec={"storageConfig": storage})
    api.put(SLURM, spec=external(accountingRef={"name": "acct"}))
    await eventually(lambda: at(kinds.DEPLOYMENT, "slurm-control") in api.objects)
    assert "AccountingStorageHost=acct-accounting\n" in conf_of(api)
    (slurmrestd, _) = template_of(api)["spec"]["containers"]
    assert "slurmctld,slurmdbd" in slurmrestd["args"]


def bench() -> tuple[Bench, SlurmControllers]:
    made = Bench(ScriptedSlurm(runs=""))
    return made, made.controllers


async def test_a_slurm_that_answers_is_ready_and_is_never_reconfigured() -> None:
    made, controllers = bench()
    world = replace(made.world(), controller=controller(**external()))
    assert not (await controllers._reconfigure(world)).waits_for
    assert made.slurm.asked == []
    status, conditions = status_of(world, {})
    assert (status.version, status.config_hash) == ("24.11.5", None)  # type: ignore[attr-defined]
    assert conditions[0].holds


async def test_a_slurm_that_does_not_answer_is_waited_for() -> None:
    made, controllers = bench()
    silent = replace(made.world(), controller=controller(**external()), unread=SlurmUnreachable("HTTP 502"))
    assert "an answer of Slurm: HTTP 502" in (await controllers._reconfigure(silent)).waits_for


async def test_a_wrong_key_is_named_with_the_secret_to_correct() -> None:
    made, controllers = bench()
    wrong = replace(made.world(), controller=controller(**external()), unread=TokenRefused("HTTP 401"))
    with pytest.raises(StepFailed, match=r"HTTP 401: Secret theirs must have slurmctld's jwt_key"):
        await controllers._reconfigure(wrong)


async def test_its_release_may_be_any(api: FakeApiServer) -> None:
    put_keys(api)
    api.put(SLURM, spec=external(), status={"version": "26.05.2"})
    change(api, external(slurmctld={"image": "slurm:24.11"}))
    control = at(kinds.DEPLOYMENT, "slurm-control")
    await eventually(
        lambda: control in api.objects and template_of(api)["spec"]["containers"][0]["image"] == "slurm:24.11"
    )
