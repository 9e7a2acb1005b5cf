"""Who was not let in is told to the audit, and cannot fill its disk."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import httpx
import pytest

from redbox.http.middleware.rejected_callers import Refusals
from redbox.observability.job_audit import Deed
from tests.redbox.callers.factories import StoppedClock, claims, token
from tests.redbox.http.routes.test_jobs import problem
from tests.redbox.http.stand import Stand


@dataclass
class Told:
    deeds: list[Deed] = field(default_factory=list)
    clock: StoppedClock = field(default_factory=StoppedClock)


@pytest.fixture
def told(stand: Stand) -> Told:
    told = Told()
    object.__setattr__(stand.services, "refusals", Refusals(told.deeds.append, told.clock))
    return told


async def test_a_stranger_is_told_with_address_and_reason(stand: Stand, told: Told) -> None:
    async with stand.by_token("nonsense") as http:
        await http.get("/v1/whoami?x=secret")
    (deed,) = told.deeds
    assert (deed.caller, deed.user, deed.act, deed.outcome) == ("unknown", None, "enter", "Unauthenticated")
    assert deed.detail.startswith("GET /v1/whoami from 127.0.0.1: the token is not a JWT")


async def test_an_identity_without_a_rule_is_named(stand: Stand, told: Told) -> None:
    async with stand.by_token(token(payload=claims(now=time.time(), namespace="biology"))) as http:
        await http.get("/v1/whoami")
    assert told.deeds[0].outcome == "NotMapped"
    assert told.deeds[0].caller == "system:serviceaccount:biology:default of cluster prod"


async def test_who_has_too_many_streams_is_named(stand: Stand, told: Told, alice: httpx.AsyncClient) -> None:
    stand.services.streams.per_user = 0
    assert (await alice.get("/v1/jobs?watch=true")).status_code == 429
    assert (told.deeds[0].user, told.deeds[0].outcome) == ("alice", "TooMany")


async def test_many_refusals_are_one_line_a_minute(stand: Stand, told: Told) -> None:
    async with stand.by_token("nonsense") as http:
        for _ in range(5):
            await http.get("/v1/whoami")
        told.clock.pass_s(61)
        await http.get("/v1/whoami")
    assert len(told.deeds) == 2
    assert told.deeds[1].detail.endswith("(4 times more since)")


async def test_what_is_amiss_is_for_callers_to_know(stand: Stand) -> None:
    async with stand.by_token("reader") as reader, stand.by_token("") as stranger:
        assert (await reader.get("/readyz")).text == "ok\nthe keys are old\n"
        assert (await stranger.get("/readyz")).text == "ok\n"
        stand.ready.reason = "it is broken"
        assert problem(await reader.get("/readyz"))["detail"] == "red-box is not ready: it is broken"
        assert problem(await stranger.get("/readyz"))["detail"] == "red-box is not ready"
