"""A body is bounded, and large ones are worked on beside the event loop."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from redbox.http.answers.bounded_json import MAX_VALUES, validated
from redbox.http.middleware import bounded_body
from redbox.http.middleware.bounded_body import LARGE_BYTES
from tests.redbox.http.answers.test_bounded_json import EMPTY_FILES
from tests.redbox.http.fakes import SCRIPT
from tests.redbox.http.harness import problem, standing


async def test_utf_16_hides_no_values_from_the_count(alice: httpx.AsyncClient) -> None:
    body = json.dumps({"batch": SCRIPT}).encode("utf-16")
    answer = await alice.post("/v1/check", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "not JSON in UTF-8" in problem(answer)["detail"]


async def test_too_many_values_are_a_refusal_in_words() -> None:
    async with standing(body_limit=8 << 20) as stand, stand.at_socket() as http:
        answer = await http.post(
            "/v1/check", content=EMPTY_FILES, headers={"content-type": "application/json"}
        )
        assert stand.services.bodies.held == 0
    assert answer.status_code == 413
    assert f"more than {MAX_VALUES} values" in problem(answer)["detail"]


async def test_a_large_body_is_validated_beside_the_event_loop(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = dict[int, str]()

    def noted(adapter: TypeAdapter[Any], body: bytes) -> object:
        threads[len(body)] = threading.current_thread().name
        return validated(adapter, body)

    monkeypatch.setattr(bounded_body, "validated", noted)
    small, large = (json.dumps({"batch": SCRIPT + "#" * size}) for size in (10, LARGE_BYTES))
    for body in (small, large):
        answer = await alice.post("/v1/check", content=body, headers={"content-type": "application/json"})
        assert answer.json()["valid"], answer.text
    assert threads[len(small)] == threading.current_thread().name
    assert threads[len(large)] != threading.current_thread().name


async def test_a_query_of_endless_parameters_is_refused_before_it_is_parsed(alice: httpx.AsyncClient) -> None:
    answer = await alice.get("/v1/jobs?" + "phase=Pending&" * 4_000)
    assert answer.status_code == 422
    assert "more than 200 parameters" in problem(answer)["detail"]


async def test_a_refusal_repeats_no_endless_name(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/check", json={"x" * 90_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 1_000
