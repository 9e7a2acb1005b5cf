"""Tokens at the API server of the tests: who gets one, until when, and what becomes of it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.controllers.access.tokens import Tokens
from redbox_hosting.controllers.clusters.keys import signed_token
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused
from tests.hosting.controllers.access_bench import BEGIN, AccessBench, at, operator, stopped_bench
from tests.hosting.controllers.access_bench import bench as running_bench

SECRET = "t-jwt-alice"
ALLOWS = {"redbox": {"tokens": {"users": ["alice"]}}}


@pytest.fixture
async def bench() -> AsyncIterator[AccessBench]:
    async with running_bench() as made:
        yield made


def put_token(bench: AccessBench, user: str = "alice", name: str = "t", **spec: Any) -> None:
    bench.put(names.TOKENS, name, **{"username": user, "lifetime": "1h", **spec})


def claims(bench: AccessBench, secret: str = SECRET, key: str = "SLURM_JWT") -> dict[str, Any]:
    payload = bench.secret(secret)[key].split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


async def has_token(bench: AccessBench, secret: str = SECRET) -> None:
    await bench.has(lambda: bench.is_there(kinds.SECRET, secret))


async def is_refused(bench: AccessBench, why: str, name: str = "t") -> None:
    await bench.has(lambda: why in bench.says(names.TOKENS, name, "Allowed"))
    assert bench.condition(names.TOKENS, name)["status"] == "False"


async def test_a_user_on_the_list_gets_a_token_of_the_cluster_for_the_time_that_was_asked(
    bench: AccessBench,
) -> None:
    put_token(bench)
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    await has_token(bench)
    key = base64.b64decode(bench.api.objects[at(kinds.SECRET, "slurm-keys")]["data"]["jwt.key"])
    assert bench.secret(SECRET) == {"SLURM_JWT": signed_token(key, "alice", BEGIN, 3600)}
    assert claims(bench)["exp"] - claims(bench)["iat"] == 3600
    await bench.has(lambda: bench.condition(names.TOKENS, "t").get("status") == "True")
    status = bench.api.objects[at(names.TOKENS, "t")]["status"]
    assert (status["issuedAt"], status["expiresAt"]) == ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")


async def test_the_secret_belongs_to_the_token_and_goes_with_it(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench)
    await has_token(bench)
    (owner,) = bench.api.objects[at(kinds.SECRET, SECRET)]["metadata"]["ownerReferences"]
    token = bench.api.objects[at(names.TOKENS, "t")]["metadata"]
    assert (owner["kind"], owner["uid"]) == ("Token", token["uid"])


@pytest.mark.parametrize("user", ["root", "slurm", "bob", "Alice"])
async def test_a_user_that_is_not_on_the_list_gets_none(bench: AccessBench, user: str) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench, user)
    await is_refused(bench, f"add {user} to its spec.redbox.tokens.users")
    assert not [name for name in bench.api.names("Secret") if "-jwt-" in name]


async def test_without_a_list_nobody_gets_one(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm")
    put_token(bench)
    await is_refused(bench, "does not allow tokens of alice")


@pytest.mark.parametrize("lifetime", ["87600h", "721h", "59s", "", "999999h999999m999999999s"])
async def test_a_lifetime_of_years_or_seconds_is_refused(bench: AccessBench, lifetime: str) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench, lifetime=lifetime)
    await is_refused(bench, "is not between 1m and 720h")
    assert not bench.is_there(kinds.SECRET, SECRET)


async def test_a_token_is_not_signed_with_the_key_of_a_cluster_that_does_not_list_its_user(
    bench: AccessBench,
) -> None:
    bench.put(names.CONTROLLERS, "real")
    bench.put(names.CONTROLLERS, "mine", redbox={"tokens": {"users": ["root"]}})
    await bench.has(lambda: bench.is_there(kinds.SECRET, "real-keys"))
    key = {"name": "real-keys", "key": "jwt.key"}
    put_token(bench, "root", controllerRef={"name": "mine"}, jwtKeyRef=key)
    await is_refused(bench, "Controller mine does not verify tokens with key jwt.key of Secret real-keys")
    put_token(bench, "root", name="u", jwtHs256KeyRef=key)
    await is_refused(bench, "Controller real does not allow tokens of root", "u")
    assert not [name for name in bench.api.names("Secret") if "-jwt-" in name]


async def test_without_a_controller_ref_the_key_says_which_cluster_is_meant(bench: AccessBench) -> None:
    bench.put_secret("theirs", jwt="0" * 32)
    key = {"name": "theirs", "key": "jwt"}
    bench.put(names.CONTROLLERS, "a", **ALLOWS)
    bench.put(names.CONTROLLERS, "b", **ALLOWS, jwtKeyRef=key)
    put_token(bench)
    put_token(bench, name="u", jwtHs256KeyRef=key)
    await has_token(bench, "u-jwt-alice")
    assert bench.secret("u-jwt-alice")["SLURM_JWT"] == signed_token(b"0" * 32, "alice", BEGIN, 3600)
    await is_refused(bench, "there are 2 Controllers in the namespace: create a Token with spec.control")


async def test_a_key_that_is_empty_signs_nothing(bench: AccessBench) -> None:
    bench.put_secret("theirs", jwt="")
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS, jwtKeyRef={"name": "theirs", "key": "jwt"})
    put_token(bench)
    await bench.has(lambda: "is empty" in bench.says(names.TOKENS, "t", "Signed"))
    assert not bench.is_there(kinds.SECRET, SECRET)


async def test_a_token_is_renewed_when_80_percent_of_its_life_is_over(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench)
    await has_token(bench)
    bench.passes(minutes=47)
    await bench.settled()
    assert claims(bench)["iat"] == BEGIN.timestamp()
    bench.passes(minutes=1)
    await bench.has(lambda: claims(bench)["iat"] == bench.now.timestamp())
    await bench.has(lambda: bench.says(names.TOKENS, "t", "Expiring").startswith("False"))


async def test_the_next_look_is_when_a_token_is_due(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench, lifetime="1m")
    await has_token(bench)
    bench.now += timedelta(seconds=8)
    tokens = bench.parts[Tokens]
    token = bench.parts[Tokens].context.watches.tokens.get(("hpc", "t"))
    outcome = await tokens._sign(await tokens._observe(token))
    assert 40 <= outcome.again_in_s <= 41


async def test_a_restart_forgets_no_renewal() -> None:
    async with stopped_bench() as bench:
        async with operator(bench):
            bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
            put_token(bench)
            await has_token(bench)
            await bench.has(lambda: bench.condition(names.TOKENS, "t").get("status") == "True")
        bench.passes(minutes=30)
        async with operator(bench):
            await bench.settled()
            assert claims(bench)["iat"] == BEGIN.timestamp()  # not due, so not written
        bench.now = BEGIN.replace(minute=55)
        async with operator(bench):
            await bench.has(lambda: claims(bench)["iat"] == bench.now.timestamp())


async def test_a_token_that_cannot_be_renewed_says_so_before_it_ends(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench)
    await bench.has(lambda: bench.condition(names.TOKENS, "t").get("status") == "True")
    bench.api.fail(ApiRefused(403, "no"), verb="merge", kind="Secret")
    bench.passes(minutes=50)
    await bench.has(lambda: bench.says(names.TOKENS, "t", "Expiring").startswith("True"))
    assert "it ends at 2026-01-01T01:00:00+00:00" in bench.says(names.TOKENS, "t", "Expiring")
    assert bench.registry.get_sample_value("redbox_hosting_tokens", {"state": "expiring"}) == 1


async def test_a_token_without_refresh_ends_and_says_so(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench, refresh=False)
    await has_token(bench)
    first = bench.secret(SECRET)
    bench.passes(minutes=61)
    await bench.has(lambda: "has ended: set spec.refresh to true" in bench.says(names.TOKENS, "t"))
    assert bench.secret(SECRET) == first
    assert bench.registry.get_sample_value("redbox_hosting_tokens", {"state": "expired"}) == 1


async def test_the_token_of_a_user_who_leaves_the_list_is_removed(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench)
    await bench.has(lambda: bench.condition(names.TOKENS, "t").get("status") == "True")
    bench.put(names.CONTROLLERS, "slurm", redbox={"tokens": {"users": ["bob"]}})
    await is_refused(bench, "does not allow tokens of alice")
    assert bench.secret(SECRET) == {}
    assert "expiresAt" not in bench.api.objects[at(names.TOKENS, "t")]["status"]
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    await bench.has(lambda: bench.secret(SECRET))


async def test_the_token_goes_with_the_controller(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench, controllerRef={"name": "slurm"})
    await has_token(bench)
    bench.api.remove(at(names.CONTROLLERS, "slurm"))
    await is_refused(bench, "there is no Controller slurm in the namespace")
    assert bench.secret(SECRET) == {}


async def test_a_refusal_is_named_although_the_token_cannot_be_removed(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench)
    await has_token(bench)
    bench.api.fail(ApiRefused(403, "no right"), verb="merge", kind="Secret")
    bench.put(names.CONTROLLERS, "slurm")
    await is_refused(bench, "does not allow tokens of alice")
    assert "it could not be removed from its Secret: " in bench.says(names.TOKENS, "t", "Allowed")


async def test_secrets_of_others_are_neither_written_nor_removed(bench: AccessBench) -> None:
    bench.put_secret(SECRET, mine="1")
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench)
    await bench.has(lambda: "does not belong to t" in bench.says(names.TOKENS, "t", "Signed"))
    bench.put_secret(SECRET, SLURM_JWT="mine")
    bench.put(names.CONTROLLERS, "slurm")
    await is_refused(bench, "does not allow")
    assert bench.secret(SECRET) == {"SLURM_JWT": "mine"}


async def test_a_token_without_refresh_is_signed_when_there_is_none(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench, refresh=False)
    await has_token(bench)
    bench.put(names.CONTROLLERS, "slurm")
    await bench.has(lambda: bench.secret(SECRET) == {})
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    await bench.has(lambda: bench.secret(SECRET))


async def test_a_changed_token_is_signed_again(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench, secretRef={"name": "mine", "key": "token"})
    await has_token(bench, "mine")
    written = bench.secret("mine")
    body = bench.api.objects[at(kinds.SECRET, "mine")]
    bench.api.put(at(kinds.SECRET, "mine"), {**body, "data": {"token": base64.b64encode(b"x.y.z").decode()}})
    await bench.settled()
    assert bench.secret("mine") == written
    put_token(bench, secretRef={"name": "mine", "key": "token"}, lifetime="2h")
    await bench.has(lambda: claims(bench, "mine", "token")["exp"] == BEGIN.timestamp() + 7200)


async def test_a_new_key_of_the_cluster_signs_all_tokens_again(bench: AccessBench) -> None:
    bench.put_secret("theirs", jwt="0" * 32)
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS, jwtKeyRef={"name": "theirs", "key": "jwt"})
    put_token(bench)
    await has_token(bench)
    bench.put_secret("theirs", jwt="1" * 32)
    bench.passes(minutes=1)
    wanted = signed_token(b"1" * 32, "alice", bench.now, 3600)
    await bench.has(lambda: bench.secret(SECRET)["SLURM_JWT"] == wanted)


@pytest.mark.parametrize(
    ("user", "secret"),
    [
        ("j.doe", "t-jwt-j.doe"),
        ("Bob_Roe", "t-jwt-bob-roe"),
        ("a._-", "t-jwt-a"),
        ("a" * 64, "t-jwt-" + "a" * 64),
    ],
)
async def test_names_of_users_become_names_of_secrets(bench: AccessBench, user: str, secret: str) -> None:
    bench.put(names.CONTROLLERS, "slurm", redbox={"tokens": {"users": [user]}})
    put_token(bench, user)
    await has_token(bench, secret)


@pytest.mark.parametrize("user", ["x.-y", "x..y", "_."])
async def test_a_user_whose_name_no_secret_can_have_needs_a_secret_ref(bench: AccessBench, user: str) -> None:
    bench.put(names.CONTROLLERS, "slurm", redbox={"tokens": {"users": [user]}})
    put_token(bench, user)
    await is_refused(bench, "cannot be the name of a Secret: create a Token with spec.secretRef")
    put_token(bench, user, name="u", secretRef={"name": "mine", "key": "token"})
    await has_token(bench, "mine")


async def test_a_name_that_is_too_long_is_refused_with_the_cure(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    name = "n" * 250
    put_token(bench, name=name)
    await is_refused(bench, "cannot be the name of a Secret: create a Token with spec.secretRef", name)


async def test_a_bad_token_delays_no_other(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    for number in range(20):
        put_token(bench, "root", name=f"bad-{number}")
    put_token(bench)
    await has_token(bench)


async def test_no_token_and_no_key_is_in_a_condition_or_an_event(bench: AccessBench) -> None:
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench)
    await bench.has(lambda: bench.condition(names.TOKENS, "t").get("status") == "True")
    text = json.dumps([bench.api.objects[at(names.TOKENS, "t")], *bench.api.events])
    assert bench.secret(SECRET)["SLURM_JWT"].split(".")[2] not in text


async def test_a_token_waits_for_the_keys_that_the_operator_makes(bench: AccessBench) -> None:
    away = bench.api.fail(ApiRefused(500, "no"), verb="create", kind="Secret", name="slurm-keys")
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    put_token(bench)
    await bench.has(lambda: "the keys of Controller slurm" in bench.says(names.TOKENS, "t", "Signed"))
    assert bench.condition(names.TOKENS, "t", "Degraded")["status"] == "False"
    away.times = 0
    await has_token(bench)


async def test_tokens_change_once_slurmctld_has_read_the_new_key(bench: AccessBench) -> None:
    put_token(bench)
    bench.put(names.CONTROLLERS, "slurm", **ALLOWS)
    await has_token(bench)
    keys = bench.api.objects[at(kinds.SECRET, "slurm-keys")]
    former, before = keys["data"]["jwt.key"], bench.secret(SECRET)
    new = base64.b64encode(b"n" * 32).decode()
    replaced = {**keys["data"], "jwt.key": new, "former-jwt.key": former}
    bench.api.put(at(kinds.SECRET, "slurm-keys"), {**keys, "data": replaced})
    bench.passes(minutes=50)  # past 80 % of its life
    await bench.has(lambda: bench.secret(SECRET) != before)
    signed = signed_token(base64.b64decode(former), "alice", bench.now, 3600)
    assert bench.secret(SECRET) == {"SLURM_JWT": signed}
    bench.api.put(at(kinds.SECRET, "slurm-keys"), {**keys, "data": {**replaced, "former-jwt.key": ""}})
    bench.reconcile_all()
    renewed = signed_token(b"n" * 32, "alice", bench.now, 3600)
    await bench.has(lambda: bench.secret(SECRET) == {"SLURM_JWT": renewed})
