"""Who is let in, and what each role may do, over real TLS and a real Unix socket."""

from __future__ import annotations

import base64
import json
import ssl
import time
from typing import Any

import httpx
import pytest

from tests.redbox.callers.factories import claims, rsa_key, token
from tests.redbox.http.fakes import SCRIPT
from tests.redbox.http.harness import Stand, problem

ALICES = [
    ("GET", "/v1/jobs/k1"),
    ("POST", "/v1/jobs/k1/hold"),
    ("POST", "/v1/jobs/k1/signal?signal=KILL"),
    ("GET", "/v1/jobs/k1/logs/stdout"),
    ("GET", "/v1/jobs/k1/logs/stderr?follow=true"),
    ("GET", "/v1/jobs/k1/files?glob=*"),
    ("GET", "/v1/jobs/k1/archive?glob=*"),
    ("GET", "/v1/jobs/k1/files/slurm-1.out"),
    ("GET", "/v1/jobs/k1/files/..%2F..%2Fetc%2Fpasswd"),
    ("PUT", "/v1/jobs/k1/files/planted"),
    ("DELETE", "/v1/jobs/k1"),
    ("DELETE", "/v1/jobs/k1?allAttempts=true"),
    ("GET", "/v1/jobs/k1?namespace=users&account=alice"),
    ("DELETE", "/v1/jobs/k1?namespace=users&account=alice"),
]


@pytest.mark.parametrize(("method", "path"), ALICES)
async def test_anothers_job_is_as_if_it_were_not_there(
    stand: Stand, alice: httpx.AsyncClient, bob: httpx.AsyncClient, method: str, path: str
) -> None:
    _, log = await stand.writing("k1", b"alice's\n")
    answer = await bob.request(method, path)
    unknown = await bob.request(method, path.replace("/k1", "/k2"))
    assert answer.status_code == unknown.status_code == 404
    assert problem(answer)["detail"] == problem(unknown)["detail"]
    job = (await alice.get("/v1/jobs/k1")).json()
    assert (job["phase"], job["cancelRequested"]) == ("Running", False)
    assert sorted(path.name for path in stand.home.iterdir()) == [log.name]


async def test_others_jobs_are_in_no_list(stand: Stand, bob: httpx.AsyncClient) -> None:
    await stand.submitted()
    assert (await bob.get("/v1/jobs")).json()["items"] == []
    assert (await bob.get("/v1/jobs?namespace=users")).json()["items"] == []


def _with_algorithm_none() -> str:
    def encoded(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{encoded({'alg': 'none', 'kid': 'a'})}.{encoded(claims(now=time.time()))}."


NOW = time.time()
STRANGERS = {
    "nobody": ("", "no token was sent"),
    "nonsense": ("nonsense", "not a JWT"),
    "an unknown opaque token": (f"rbt_{'a' * 10}_{'b' * 43}", "the token is unknown"),
    "an expired token": (token(payload=claims(now=NOW - 7200)), "expired"),
    "one for others": (token(payload=claims(now=NOW, aud=["https://kubernetes"])), "the token is for"),
    "one by another key": (token(key=rsa_key(1), payload=claims(now=NOW)), "signature"),
    "one by an unknown key": (token(kid="z", payload=claims(now=NOW)), "signed by key 'z'"),
    "one without a signature": (_with_algorithm_none(), "algorithm is 'none'"),
}


@pytest.mark.parametrize("case", STRANGERS)
async def test_who_cannot_be_known_is_told_why(stand: Stand, case: str) -> None:
    shown, words = STRANGERS[case]
    async with stand.by_token(shown) as http:
        answer = await http.get("/v1/whoami")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert words in problem(answer)["detail"]


async def test_a_stranger_is_refused_before_the_body_is_read(stand: Stand) -> None:
    async with stand.by_token("") as http:
        answer = await http.put("/v1/jobs/k1", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 401


async def test_a_service_account_is_its_user(stand: Stand) -> None:
    async with stand.by_token(token(payload=claims(now=time.time()))) as http:
        answer = (await http.get("/v1/whoami")).json()
    assert (answer["user"], answer["owner"]["namespace"]) == ("alice", "physics")


async def test_an_identity_without_a_rule_is_forbidden_and_told_what_was_seen(stand: Stand) -> None:
    async with stand.by_token(token(payload=claims(now=time.time(), namespace="biology"))) as http:
        answer = await http.get("/v1/whoami")
    assert answer.status_code == 403
    assert "system:serviceaccount:biology:default of cluster prod" in problem(answer)["detail"]


async def test_an_operator_sees_and_cancels_all_and_does_nothing_else(stand: Stand) -> None:
    await stand.writing("k1", b"alice's\n")
    whose = "namespace=users&account=alice"
    async with stand.by_token("operator") as operator:
        assert [job["key"] for job in (await operator.get("/v1/jobs")).json()["items"]] == ["k1"]
        assert (await operator.get(f"/v1/jobs/k1?{whose}")).status_code == 200
        for method, path in [
            ("PUT", "/v1/jobs/k2"),
            ("GET", "/v1/jobs/k1/logs/stdout"),
            ("GET", "/v1/jobs/k1/files/slurm-1.out"),
            ("POST", "/v1/jobs/k1/hold"),
        ]:
            answer = await operator.request(method, path, json={"batch": SCRIPT})
            assert answer.status_code == 403, path
        assert (await operator.delete(f"/v1/jobs/k1?{whose}")).status_code == 200
    await stand.until("k1", lambda job: job["phase"] == "Cancelled")


async def test_half_an_owner_is_refused(stand: Stand) -> None:
    async with stand.by_token("operator") as operator:
        assert (await operator.get("/v1/jobs/k1?namespace=users")).status_code == 422


async def test_a_reader_sees_partitions_and_no_jobs(stand: Stand) -> None:
    async with stand.by_token("reader") as reader:
        assert (await reader.get("/v1/partitions")).status_code == 200
        assert (await reader.get("/v1/cluster")).status_code == 200
        assert (await reader.get("/v1/jobs")).status_code == 403
        assert (await reader.get("/v1/jobs?watch=true")).status_code == 403
        assert (await reader.put("/v1/jobs/k1", json={"batch": SCRIPT})).status_code == 403


@pytest.mark.parametrize("beyond", [{"partition": "gpu"}, {"account": "biology"}, {"partition": "debug,gpu"}])
async def test_what_a_rule_does_not_allow_is_forbidden(stand: Stand, beyond: dict[str, str]) -> None:
    async with stand.by_token("limited") as limited:
        answer = await limited.put("/v1/jobs/k1", json={"batch": SCRIPT, **beyond})
    assert answer.status_code == 403
    assert "not among those that the mapping allows" in problem(answer)["detail"]


async def test_without_the_ca_nobody_talks(stand: Stand) -> None:
    async with httpx.AsyncClient(verify=ssl.create_default_context(), trust_env=False) as http:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await http.get(stand.endpoint + "/healthz")
