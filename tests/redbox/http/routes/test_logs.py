"""Logs over HTTP: any offset, as they grow, to their end, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from dataclasses import replace

import httpx
import pytest

from redbox_api.client import LogQuery
from redbox_api.log_reader import follow_log
from tests.redbox.http.harness import Stand, eventually, problem, until_streams_are

LINES = b"".join(b"line %d\n" % number for number in range(100))
STDOUT = "/v1/jobs/k1/logs/stdout"


@pytest.mark.parametrize(
    ("query", "expected", "offset"),
    [
        ("", LINES, 0),
        ("offset=7&attempt=1", LINES[7:], 7),
        ("offset=7&limit=6", b"line 1", 7),
        ("tail=8", b"line 99\n", len(LINES) - 8),
        ("tailLines=2", b"line 98\nline 99\n", len(LINES) - 16),
        ("limit=0", b"", 0),
    ],
)
async def test_a_part_of_a_log(
    stand: Stand, alice: httpx.AsyncClient, query: str, expected: bytes, offset: int
) -> None:
    await stand.writing("k1", LINES)
    answer = await alice.get(f"{STDOUT}?{query}")
    assert answer.status_code == 200
    assert answer.content == expected
    assert answer.headers["redbox-offset"] == str(offset)
    assert answer.headers["content-type"] == "application/octet-stream"


POD = {
    "name": "p",
    "namespace": "physics",
    "uid": "u",
    "containers": [{"name": "c", "image": "docker://x"}],
}
AT = "2026-01-01T00:00:00Z"
RUNNING = {"running": {"startedAt": AT}}


def report_container(stand: Stand, job_id: str, state: object, restarts: int = 0) -> None:
    container = {"name": "c", "state": state, "restartCount": restarts}
    line = json.dumps({"at": AT, "containers": [container]}).encode()
    stand.slurm.reports[stand.slurm.jobs[job_id].mark] = line


async def test_each_start_of_a_pods_container_is_a_log(stand: Stand, alice: httpx.AsyncClient) -> None:
    job_id = await stand.submitted("k1", batch=None, pod=POD)
    stand.slurm.start(job_id)
    report_container(stand, job_id, RUNNING)
    await stand.until("k1", lambda job: job.get("pod"))
    (stand.home / "c-0.log").write_bytes(b"first\n")
    (stand.home / "c-1.log").write_bytes(b"second\n")
    async with asyncio.timeout(60), stand.client() as client:
        pieces = follow_log(client, "k1", LogQuery(container="c"))
        assert await anext(pieces) == b"first\n"
        report_container(stand, job_id, RUNNING, 1)
        assert [piece async for piece in pieces] == []
    answer = await alice.get(f"{STDOUT}?container=c")
    assert (answer.content, answer.headers["redbox-restart"]) == (b"second\n", "1")
    assert (await alice.get(f"{STDOUT}?container=c&restart=0")).content == b"first\n"
    assert (await alice.get("/v1/jobs/k1/logs/stderr?container=c")).status_code == 204


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("container=other", 404),
        ("container=c&restart=1", 404),
        ("container=..%2F..%2Fetc%2Fpasswd", 422),
        ("container=c%2F..%2Fd", 422),
        ("container=", 422),
        ("container=c&restart=-1", 422),
        ("container=c&restart=1099511627776", 422),
        ("restart=0", 422),
    ],
)
async def test_what_is_no_container_is_refused_in_a_sentence(
    stand: Stand, alice: httpx.AsyncClient, query: str, status: int
) -> None:
    job_id = await stand.submitted("k1", batch=None, pod=POD)
    stand.slurm.start(job_id)
    report_container(stand, job_id, RUNNING)
    await stand.until("k1", lambda job: job.get("pod"))
    answer = await alice.get(f"{STDOUT}?{query}")
    assert answer.status_code == status
    assert answer.json()["detail"]


async def test_a_job_that_is_no_pod_has_no_containers(stand: Stand, alice: httpx.AsyncClient) -> None:
    await stand.writing("k1", LINES)
    assert (await alice.get(f"{STDOUT}?container=c")).status_code == 404


async def test_bytes_are_bytes(stand: Stand, alice: httpx.AsyncClient) -> None:
    content = bytes(range(256)) * 20_000
    await stand.writing("k1", content)
    assert (await alice.get(STDOUT)).content == content


async def test_a_follower_sees_what_is_appended_and_the_end(stand: Stand, alice: httpx.AsyncClient) -> None:
    job_id, path = await stand.writing("k1", b"one\n")
    read, generation = b"", ""
    async with asyncio.timeout(60):
        async with alice.stream("GET", f"{STDOUT}?follow=true") as answer:
            generation = answer.headers["redbox-generation"]
            async for piece in answer.aiter_raw():
                read += piece
                if read == b"one\n":
                    with path.open("ab") as log:
                        log.write(b"two\n")
                if read == b"one\ntwo\n":
                    stand.slurm.end(job_id)
        end = await alice.get(f"{STDOUT}?follow=true&generation={generation}&offset={len(read)}")
    assert read == b"one\ntwo\n"
    assert end.status_code == 204


async def test_a_reader_of_an_old_generation_begins_the_new_one_at_its_start(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    await stand.writing("k1", LINES)
    answer = await alice.get(f"{STDOUT}?generation=1.2.3&offset=50")
    assert answer.headers["redbox-offset"] == "0"
    assert answer.content == LINES


async def test_both_streams_in_one_file_are_read_as_stdout(stand: Stand, alice: httpx.AsyncClient) -> None:
    job_id, path = await stand.writing("k1", LINES)
    stand.slurm.put(replace(stand.slurm.jobs[job_id], stderr=str(path)))
    await stand.until("k1", lambda job: job["logs"]["stderr"] == str(path))
    assert (await alice.get("/v1/jobs/k1/logs/stderr")).status_code == 204


async def test_a_log_that_the_user_may_not_read_is_refused_in_the_systems_words(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    _, path = await stand.writing("k1", LINES)
    path.chmod(0)
    os.chown(path, 0, 0) if os.geteuid() == 0 else None
    answer = await alice.get(STDOUT)
    assert answer.status_code == 403
    assert "Permission denied" in problem(answer)["detail"]


@pytest.mark.parametrize(
    "query", ["offset=-1", "tail=1&tailLines=1", "follow=perhaps", "limit=1e9", "generation=" + "x" * 200]
)
async def test_a_place_that_is_none_is_refused(stand: Stand, alice: httpx.AsyncClient, query: str) -> None:
    await stand.writing("k1", LINES)
    assert (await alice.get(f"{STDOUT}?{query}")).status_code == 422


async def test_an_arrays_log_needs_its_task(stand: Stand, alice: httpx.AsyncClient) -> None:
    job_id, path = await stand.writing("k1", LINES)
    pattern = str(path.with_name("slurm-%A_%a.out"))
    path.with_name(f"slurm-{job_id}_3.out").write_bytes(b"of task 3\n")
    stand.slurm.put(replace(stand.slurm.jobs[job_id], array_size=5, stdout=pattern))
    await stand.until("k1", lambda job: job.get("array"))
    answer = await alice.get(STDOUT)
    assert answer.status_code == 422
    assert "task" in problem(answer)["detail"]
    assert (await alice.get(f"{STDOUT}?task=3")).content == b"of task 3\n"


async def test_a_reader_who_leaves_a_silent_log_leaves_nothing_behind(
    stand: Stand, alice: httpx.AsyncClient
) -> None:
    await stand.writing("k1", b"")
    await alice.get(STDOUT)  # starts the agent, which stays
    before = names_of_tasks()
    reader, writer = await asyncio.open_unix_connection(str(stand.socket))
    writer.write(f"GET {STDOUT}?follow=true HTTP/1.1\r\nhost: redbox\r\n\r\n".encode())
    await until_streams_are(stand, 1)
    writer.close()
    await writer.wait_closed()
    await until_streams_are(stand, 0)
    await eventually(lambda: names_of_tasks() <= before)  # what was on its way out before may be gone
    assert await reader.read(1) == b""


def names_of_tasks() -> Counter[str]:
    """What runs, by the functions that run."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)
