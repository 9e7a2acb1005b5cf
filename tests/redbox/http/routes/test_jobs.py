"""Submitting, looking, cancelling and acting, as an HTTP client sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from redbox.core.observations import TaskObservation
from tests.redbox.http.fakes import SCRIPT
from tests.redbox.http.harness import BODY_LIMIT, Stand, problem, standing
from tests.redbox.jobs.submit_manners import REFUSED, UNAVAILABLE


async def test_a_submit_is_created_once_and_the_same_afterwards(alice: httpx.AsyncClient) -> None:
    first = await alice.put("/v1/jobs/k1", json={"batch": SCRIPT})
    again = await alice.put("/v1/jobs/k1", json={"batch": SCRIPT})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["jobID"] == again.json()["jobID"]


async def test_another_body_under_the_same_key_is_a_conflict(alice: httpx.AsyncClient) -> None:
    await alice.put("/v1/jobs/k1", json={"batch": SCRIPT})
    answer = await alice.put("/v1/jobs/k1", json={"batch": SCRIPT + "false\n"})
    assert answer.status_code == 409
    assert not problem(answer)["retry"]


def pod_with(**fields: object) -> dict[str, Any]:
    containers = [{"name": "main", "image": "docker://busybox"}]
    return {"pod": {"name": "p", "namespace": "n", "uid": "u", "containers": containers, **fields}}


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"batch": SCRIPT, "bacth": 1}, "bacth is not a field of this request"),
    "one further in": (
        {"batch": SCRIPT, "resources": {"node": 1}},
        "resources.node is not a field of this request",
    ),
    "one of a container": (
        {"container": {"image": "a", "options": {"fakeroot": True}}},
        "container.options.fakeroot is not a field of this request",
    ),
    "a file of a pod that is not in its volume": (
        pod_with(volumes=[{"name": "v", "files": {"files": [{"path": "/etc/x", "content": ""}]}}]),
        "pod.volumes.0.files.files.0.path must be a path in the volume",
    ),
    "a file of a pod that is not base64": (
        pod_with(volumes=[{"name": "v", "files": {"files": [{"path": "x", "content": "%%"}]}}]),
        "pod.volumes.0.files.files.0.content must be in base64",
    ),
    "a path with a NUL": (
        pod_with(volumes=[{"name": "v", "files": {"files": [{"path": "a\0", "content": ""}]}}]),
        "pod.volumes.0.files.files.0.path must be",
    ),
    "a folder of the node that is not absolute": (
        pod_with(volumes=[{"name": "v", "hostPath": {"path": "x"}}]),
        "pod.volumes.0.hostPath.path must be an absolute path without line breaks",
    ),
    "too many containers": (
        pod_with(containers=[{"name": f"c{number}", "image": "/x"} for number in range(65)]),
        "pod.containers must have at most 64 items",
    ),
    "no containers": (pod_with(containers=[]), "pod.containers must have at least 1 item"),
    "a pod and a script": (pod_with() | {"batch": SCRIPT}, "exactly one of batch, container and pod"),
    "no kind": ({}, "exactly one of batch, container and pod"),
    "two kinds": ({"batch": SCRIPT, "container": {"image": "a"}}, "exactly one of batch, container and pod"),
    "a number too small": ({"batch": SCRIPT, "resources": {"nodes": 0}}, "resources.nodes"),
    "a name of an environment variable": ({"batch": SCRIPT, "env": {"A B": "1"}}, "env.A B"),
    "a dependency on nothing": ({"batch": SCRIPT, "dependencies": [{}]}, "exactly one of key and jobID"),
}


@pytest.mark.parametrize("case", UNREADABLE)
async def test_a_request_that_cannot_be_read_is_refused_by_the_name_of_its_field(
    alice: httpx.AsyncClient, case: str
) -> None:
    body, words = UNREADABLE[case]
    answer = await alice.put("/v1/jobs/k1", json=body)
    assert answer.status_code == 422
    assert words in problem(answer)["detail"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the body is missing"),
        (b"{", "the body is not JSON"),
        (b'"\xff"', "not JSON in UTF-8"),
        (b"[]", "one JSON object"),
    ],
)
async def test_a_body_that_is_no_request_is_refused_in_words(
    alice: httpx.AsyncClient, content: bytes, words: str
) -> None:
    json = {"content-type": "application/json"}
    answer = await alice.put("/v1/jobs/k1", content=content, headers=json)
    assert answer.status_code == 422
    assert words in problem(answer)["detail"]


SCRIPTS = {
    "empty": ("", "empty"),
    "blank": (" \n", "empty"),
    "binary": ("#!/bin/sh\n\0", "binary"),
    "of DOS": ("#!/bin/sh\r\ntrue\r\n", "DOS line ends"),
    "without an interpreter": ("true\n", "must name its interpreter"),
}


@pytest.mark.parametrize("case", SCRIPTS)
async def test_a_script_that_cannot_run_is_refused_in_words(alice: httpx.AsyncClient, case: str) -> None:
    script, words = SCRIPTS[case]
    answer = await alice.put("/v1/jobs/k1", json={"batch": script})
    assert answer.status_code == 422
    assert words in problem(answer)["detail"]
    assert (await alice.get("/v1/jobs/k1")).status_code == 404


async def test_a_refusal_does_not_repeat_secrets(alice: httpx.AsyncClient) -> None:
    body = {
        "batch": SCRIPT,
        "env": {"TOKEN": "hunter2\0"},
        "container": {"registry": {"password": "hunter2"}},
    }
    answer = await alice.put("/v1/jobs/k1", json=body)
    assert answer.status_code == 422
    assert "hunter2" not in answer.text


async def test_slurms_refusal_is_told_in_its_own_words_and_not_to_be_tried_again(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    stand.slurm.manners.append(REFUSED)
    answer = await alice.put("/v1/jobs/k1", json={"batch": SCRIPT})
    assert answer.status_code == 422
    assert problem(answer)["detail"] == "sbatch: error: invalid partition specified: nowhere"
    assert not problem(answer)["retry"]


async def test_slurm_away_is_to_be_tried_again_later(stand: Stand, alice: httpx.AsyncClient) -> None:
    stand.slurm.manners.append(UNAVAILABLE)
    answer = await alice.put("/v1/jobs/k1", json={"batch": SCRIPT})
    assert answer.status_code == 503
    assert problem(answer)["retry"]
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    alice: httpx.AsyncClient, *, announced: bool
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x" * (BODY_LIMIT // 2)

    content = b"x" * (2 * BODY_LIMIT) if announced else pieces()
    answer = await alice.put("/v1/jobs/k1", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    assert str(BODY_LIMIT) in problem(answer)["detail"]


@pytest.mark.parametrize("key", ["a_b", "a.b", "a" * 65, "%20", "%00"])
async def test_a_key_is_letters_digits_and_dashes(alice: httpx.AsyncClient, key: str) -> None:
    answer = await alice.get(f"/v1/jobs/{key}")
    assert answer.status_code == 422
    assert problem(answer)["detail"].startswith("key must be 1 to 64 letters")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/k1?atempt=2"),
        ("DELETE", "/v1/jobs/k1?allAtempts=true"),
        ("GET", "/v1/jobs?account=a"),
        ("GET", "/v1/jobs/k1/logs/stdout?tail_lines=1"),
        ("GET", "/v1/whoami?verbose=1"),
    ],
)
async def test_a_misspelt_query_parameter_is_refused_by_name(
    alice: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await alice.request(method, path)
    assert answer.status_code == 422
    assert path.partition("?")[2].partition("=")[0] in problem(answer)["detail"]


async def test_a_cancel_before_the_submit_refuses_the_submit(alice: httpx.AsyncClient) -> None:
    assert (await alice.delete("/v1/jobs/k1")).status_code == 404
    answer = await alice.put("/v1/jobs/k1", json={"batch": SCRIPT})
    assert answer.status_code == 409
    assert "deleted before it was submitted" in problem(answer)["detail"]


async def test_a_cancelled_job_ends_as_cancelled(stand: Stand, alice: httpx.AsyncClient) -> None:
    await stand.submitted()
    answer = await alice.delete("/v1/jobs/k1")
    assert [job["cancelRequested"] for job in answer.json()["items"]] == [True]
    assert (await stand.until("k1", lambda job: job["phase"] == "Cancelled"))["state"] == "CANCELLED"


async def test_acts_are_done_or_refused_in_slurms_words(stand: Stand, alice: httpx.AsyncClient) -> None:
    await stand.submitted()
    assert (await alice.post("/v1/jobs/k1/hold")).status_code == 200
    stand.slurm.refuse_acts = "Access/permission denied"
    answer = await alice.post("/v1/jobs/k1/release")
    assert answer.status_code == 422
    assert problem(answer)["detail"] == "Access/permission denied"


@pytest.mark.parametrize(
    ("path", "status"),
    [("signal", 422), ("hold?signal=TERM", 422), ("signal?signal=%3Brm", 422), ("explode", 404)],
)
async def test_an_act_that_is_none_is_refused(
    stand: Stand, alice: httpx.AsyncClient, path: str, status: int
) -> None:
    await stand.submitted()
    assert (await alice.post(f"/v1/jobs/k1/{path}")).status_code == status


async def test_a_list_comes_in_pages_that_together_are_all(stand: Stand, alice: httpx.AsyncClient) -> None:
    for number in range(5):
        await stand.submitted(f"k{number}")
    page = (await alice.get("/v1/jobs?limit=2")).json()
    keys = [job["key"] for job in page["items"]]
    while "next" in page:
        page = (await alice.get("/v1/jobs", params={"limit": 2, "continue": page["next"]})).json()
        keys += [job["key"] for job in page["items"]]
    assert keys == ["k0", "k1", "k2", "k3", "k4"]


async def test_a_list_is_limited_to_phases(stand: Stand, alice: httpx.AsyncClient) -> None:
    await stand.submitted("waits")
    await stand.writing("runs")
    running = (await alice.get("/v1/jobs?phase=Running&phase=Failed")).json()
    assert [job["key"] for job in running["items"]] == ["runs"]


async def test_a_continue_token_of_ones_own_making_is_refused(alice: httpx.AsyncClient) -> None:
    assert (await alice.get("/v1/jobs?continue=e30")).status_code == 422


async def test_too_many_submits_are_told_when_to_come_again() -> None:
    async with standing(submits_per_second=0.01, submit_burst=1) as stand, stand.at_socket() as alice:
        await stand.submitted("k1")
        answer = await alice.put("/v1/jobs/k2", json={"batch": SCRIPT})
    assert answer.status_code == 429
    assert problem(answer)["retry"]
    assert int(answer.headers["retry-after"]) >= 1


async def test_more_followed_logs_than_one_user_may_have_are_refused(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    stand.services.streams.per_caller = 0
    answer = await alice.get("/v1/jobs?watch=true")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "5"


async def test_the_owner_of_a_waiting_job_learns_when_slurm_expects_it_to_start(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    job_id = await stand.submitted("k1")
    stand.slurm.expected_start_at = datetime(2026, 11, 25, 14, 5, tzinfo=UTC)
    answer = await alice.get("/v1/jobs/k1/expected-start")
    assert answer.json() == {"reason": "Priority", "startsAt": "2026-11-25T14:05:00Z"}
    assert (await alice.get("/v1/jobs/k1/expected-start?attempt=2")).status_code == 404
    async with stand.by_token(stand.tokens["bob"]) as bob:
        assert (await bob.get("/v1/jobs/k1/expected-start")).status_code == 404
    stand.slurm.end(job_id)
    await stand.until("k1", lambda job: job["phase"] == "Succeeded")
    assert problem(answer := await alice.get("/v1/jobs/k1/expected-start"))["detail"].startswith(
        "The job has ended"
    )
    assert answer.status_code == 409


async def test_a_check_says_whether_slurm_would_take_it(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/v1/check", json={"batch": SCRIPT})
    assert answer.json()["valid"]


async def test_of_an_array_the_tasks_may_be_left_out(stand: Stand) -> None:
    """There may be 50,000: who wants the state alone does not read 8 MiB."""
    job_id = await stand.submitted()
    tasks = tuple(TaskObservation(index, f"{job_id}_{index}", "RUNNING") for index in range(3))
    stand.slurm.put(replace(stand.slurm.jobs[job_id], tasks=tasks, array_size=3))
    whole = await stand.until("k1", lambda job: job.get("tasks"))
    async with stand.at_socket() as http:
        short = (await http.get("/v1/jobs/k1", params={"tasks": "false"})).json()
    assert [task["index"] for task in whole["tasks"]] == [0, 1, 2]
    assert "tasks" not in short
    assert short["array"] == whole["array"]
