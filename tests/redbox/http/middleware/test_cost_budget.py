"""A caller's share is charged before the work, and what was refused for it passes later."""

from __future__ import annotations

from dataclasses import dataclass

import httpx
import pytest

from redbox.core.domain import Caller, Owner, Role, UnixUser
from redbox.core.token_buckets import Rate
from redbox.http.answers.problems import TooManyRequestsProblem
from redbox.http.middleware.cost_budget import CostBudget
from tests.redbox.http.fakes import SCRIPT
from tests.redbox.http.harness import Stand, problem

OWNER = Owner("kube", "physics", "default")
ALICE = Caller("token:a", OWNER, frozenset({Role.SUBMIT}), UnixUser("alice", 2001))
ALICE_TOO = Caller("token:b", Owner("kube", "physics", "other"), ALICE.roles, ALICE.user)
BOB = Caller("token:c", OWNER, frozenset({Role.SUBMIT}), UnixUser("bob", 2002))
OPERATOR = Caller("token:o", OWNER, frozenset({Role.OPERATOR}))


@dataclass
class Seconds:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_passes_and_then_so_many_a_second() -> None:
    budget = CostBudget("requests", Rate(2.0, 4.0), now=(clock := Seconds()))
    assert passed(budget, ALICE, 100) == 4
    clock.now += 3
    assert passed(budget, ALICE, 100) == 6 - 2  # no more than the burst


def test_any_cost_passes_and_is_waited_for_afterwards() -> None:
    budget = CostBudget("bytes", Rate(10.0, 20.0), now=(clock := Seconds()))
    budget.charge(ALICE, 500)
    with pytest.raises(TooManyRequestsProblem) as refused:
        budget.charge(ALICE, 1)
    assert refused.value.retry_after == 49
    clock.now += 48.1
    budget.charge(ALICE, 1)


def test_all_identities_of_a_user_share_and_no_user_takes_of_anothers() -> None:
    budget = CostBudget("requests", Rate(1.0, 4.0), now=Seconds())
    assert passed(budget, ALICE, 3) == 3
    assert passed(budget, ALICE_TOO, 3) == 1
    assert passed(budget, BOB, 9) == 4
    assert passed(budget, OPERATOR, 99) == 40


def test_kinds_have_buckets_of_their_own() -> None:
    """A flood of submits must not delay a cancel."""
    budget = CostBudget("requests", Rate(1.0, 4.0), now=Seconds())
    assert passed(budget, ALICE, 9, "PUT") == 4
    assert passed(budget, ALICE, 9, "DELETE") == 4


def test_many_that_are_refused_are_sent_away_for_different_pauses() -> None:
    budget = CostBudget("requests", Rate(10.0, 4.0), now=(clock := Seconds()))
    pauses = list[float]()
    for _ in range(204):
        try:
            budget.charge(ALICE)
        except TooManyRequestsProblem as refused:
            pauses.append(refused.retry_after or 0)
    assert len(pauses) == 200
    assert (min(pauses), max(pauses)) == (1, 20)
    clock.now += 20
    assert passed(budget, ALICE, 9) == 4


async def test_a_body_is_charged_for_its_values_and_before_they_are_validated(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    """192 KiB of them, back to back, took bob's requests from 20 ms to 2 s."""
    costs = stand.services.body_costs
    costs.now, costs.rate = Seconds(), Rate(1.0, 200_000.0)
    options = {"batch": SCRIPT, "options": ["\n"] * 2_000}
    answers = [await alice.post("/v1/check", json=options) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [422, 429, 429]


def passed(budget: CostBudget, caller: Caller, times: int, kind: str = "") -> int:
    return sum(is_passed(budget, caller, 1.0, kind) for _ in range(times))


def is_passed(budget: CostBudget, caller: Caller, cost: float, kind: str = "") -> bool:
    try:
        budget.charge(caller, cost, kind)
    except TooManyRequestsProblem:
        return False
    return True


async def test_deletions_are_limited_and_told_when_to_come_again(
    stand: Stand, alice: httpx.AsyncClient, bob: httpx.AsyncClient
) -> None:
    stand.services.writes.now, stand.services.writes.rate = Seconds(), Rate(0.01, 3.0)
    answers = [await alice.delete(f"/v1/jobs/none-{number}") for number in range(5)]
    assert [answer.status_code for answer in answers] == [404, 404, 404, 429, 429]
    assert problem(answers[-1])["retry"]
    assert "too many requests that change something: 0.01 a second" in problem(answers[-1])["detail"]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert (await alice.get("/v1/whoami")).status_code == 200
    assert (await bob.delete("/v1/jobs/none")).status_code == 404


async def test_what_an_operator_deletes_for_one_namespace_delays_no_other(stand: Stand) -> None:
    stand.services.writes.now, stand.services.writes.rate = Seconds(), Rate(0.01, 0.3)  # three of an operator
    async with stand.by_token("operator") as operator:

        async def statuses(namespace: str) -> list[int]:
            paths = [f"/v1/jobs/k{n}?namespace={namespace}&account=a{n}" for n in range(5)]
            return [(await operator.delete(path)).status_code for path in paths]

        assert await statuses("physics") == [404, 404, 404, 429, 429]
        assert await statuses("chemistry") == [404, 404, 404, 429, 429]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/jobs/k1"),
        ("PUT", "/v1/jobs/k1/files/f"),
        ("PUT", "/v1/volumes/v1"),
        ("DELETE", "/v1/jobs/k1"),
        ("DELETE", "/v1/volumes/v1"),
        *[("POST", f"/v1/jobs/k1/{act}") for act in ("hold", "release", "requeue", "signal", "cancel-task")],
        ("POST", "/v1/check"),
        ("POST", "/v1/streams/s1/renew"),
    ],
)
async def test_every_write_is_limited(stand: Stand, alice: httpx.AsyncClient, method: str, path: str) -> None:
    stand.services.writes.now, stand.services.writes.rate = Seconds(), Rate(0.01, 1.0)
    await alice.request(method, path, json={})
    assert (await alice.request(method, path, json={})).status_code == 429


async def test_a_submit_that_was_refused_for_its_share_succeeds_when_it_is_sent_again(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    clock = stand.services.body_costs.now = Seconds()
    stand.services.body_costs.rate = Rate(100.0, 1.0)
    await stand.submitted("k1")
    refused = await alice.put("/v1/jobs/k2", json={"batch": SCRIPT, "workingDirectory": str(stand.home)})
    assert refused.status_code == 429
    clock.now += int(refused.headers["retry-after"])
    await stand.submitted("k2")


async def test_a_body_is_not_read_of_a_caller_whose_share_is_spent(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    stand.services.body_costs.now = Seconds()
    stand.services.body_costs.rate = Rate(1.0, 1.0)
    await alice.post("/v1/check", json={})
    stand.services.bodies.per_caller = 0  # which would refuse the body itself
    answer = await alice.post("/v1/check", json={})
    assert "too much in request bodies" in problem(answer)["detail"]
