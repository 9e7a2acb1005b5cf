"""Who was not let in is in the audit, and cannot fill its disk."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import httpx
import pytest

from redbox.http.middleware.rejected_callers import RejectionAudit
from redbox.observability.job_audit import AuditEntry
from tests.redbox.callers.factories import StoppedClock, claims, token
from tests.redbox.http.harness import Stand, problem


@dataclass
class Recorded:
    entries: list[AuditEntry] = field(default_factory=list)
    clock: StoppedClock = field(default_factory=StoppedClock)


@pytest.fixture
def recorded(stand: Stand) -> Recorded:
    recorded = Recorded()
    object.__setattr__(stand.services, "rejections", RejectionAudit(recorded.entries.append, recorded.clock))
    return recorded


async def test_a_stranger_is_recorded_with_address_and_reason(stand: Stand, recorded: Recorded) -> None:
    async with stand.by_token("nonsense") as http:
        await http.get("/v1/whoami?x=secret")
    (entry,) = recorded.entries
    assert (entry.caller, entry.user, entry.act, entry.outcome) == (
        "unknown",
        None,
        "enter",
        "Unauthenticated",
    )
    assert entry.detail.startswith("GET /v1/whoami from 127.0.0.1: the token is not a JWT")


async def test_an_identity_without_a_rule_is_named(stand: Stand, recorded: Recorded) -> None:
    async with stand.by_token(token(payload=claims(now=time.time(), namespace="biology"))) as http:
        await http.get("/v1/whoami")
    assert recorded.entries[0].outcome == "NotMapped"
    assert recorded.entries[0].caller == "system:serviceaccount:biology:default of cluster prod"


async def test_who_has_too_many_streams_is_named(
    stand: Stand, recorded: Recorded, alice: httpx.AsyncClient
) -> None:
    stand.services.streams.per_caller = 0
    assert (await alice.get("/v1/jobs?watch=true")).status_code == 429
    assert (recorded.entries[0].user, recorded.entries[0].outcome) == ("alice", "TooMany")


async def test_many_refusals_are_one_line_a_minute(stand: Stand, recorded: Recorded) -> None:
    async with stand.by_token("nonsense") as http:
        for _ in range(5):
            await http.get("/v1/whoami")
        recorded.clock.pass_s(61)
        await http.get("/v1/whoami")
    assert len(recorded.entries) == 2
    assert recorded.entries[1].detail.endswith("(4 times more since)")


async def test_what_is_amiss_is_for_callers_to_know(stand: Stand) -> None:
    async with stand.by_token("reader") as reader, stand.by_token("") as stranger:
        assert (await reader.get("/readyz")).text == "ok\nthe keys are old\n"
        assert (await stranger.get("/readyz")).text == "ok\n"
        stand.ready.reason = "it is broken"
        assert problem(await reader.get("/readyz"))["detail"] == "red-box is not ready: it is broken"
        assert problem(await stranger.get("/readyz"))["detail"] == "red-box is not ready"
