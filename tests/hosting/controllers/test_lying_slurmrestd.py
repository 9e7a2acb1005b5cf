"""slurmrestd as an adversary: whatever it answers, no worker with a job goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redbox_hosting.slurm.client import SlurmrestdClient
from tests.hosting.controllers.node_set_bench import bench, operator
from tests.hosting.controllers.slurmrestd_in_memory import Lie, SlurmrestdInMemory
from tests.hosting.slurm.scripted_server import response, serving

JOB = {"job_id": 7, "job_state": ["RUNNING"], "nodes": "w-0"}
REFUSED = response({"errors": [{"error": "Invalid node state specified", "error_number": 2028}]}, 500)
FREE = {"name": "w-0", "state": ["IDLE", "DRAIN"], "instance_id": "", "address": ""}


def of_reads(lie: Callable[[str, bytes], bytes | None]) -> Lie:
    return lambda method, what, truth: lie(what, truth) if method == "GET" else truth


def only(lists: str, answer: object, status: int = 200) -> Lie:
    return of_reads(lambda what, truth: response(answer, status) if what == lists else truth)


@pytest.mark.parametrize(
    ("case", "lie"),
    [
        ("hangs", of_reads(lambda *_: None)),
        ("hangs in the middle", of_reads(lambda what, truth: None if what == "jobs" else truth)),
        ("502", of_reads(lambda *_: response({}, 502))),
        ("200 with errors", only("jobs", {"jobs": [], "errors": [{"error": "x", "error_number": 1}]})),
        ("half an answer", of_reads(lambda _, truth: truth[:-5])),
        ("an empty answer", only("jobs", {})),
        ("no nodes", only("nodes", {"nodes": []})),
        ("another node's answer", only("nodes", {"nodes": [{**FREE, "name": "w-1"}]})),
        ("a node of nobody", only("nodes", {"nodes": [FREE]})),
        ("the node twice", only("nodes", {"nodes": [FREE, {**FREE, "state": ["ALLOCATED"]}]})),
        ("a node without a state", only("nodes", {"nodes": [{**FREE, "state": []}]})),
        ("no jobs, for a moment", only("jobs", {"jobs": []})),
        ("404", of_reads(lambda *_: response({}, 404))),
        ("no JSON", of_reads(lambda *_: response(b"<html>"))),
        ("the answer to another question", only("jobs", {"nodes": [FREE], "errors": []})),
        ("the job on another node", only("jobs", {"jobs": [{**JOB, "nodes": "w-1"}]})),
        (
            "the job has ended, and the node has not",
            only("jobs", {"jobs": [{**JOB, "job_state": ["COMPLETED"]}]}),
        ),
        ("a job without its nodes", only("jobs", {"jobs": [{"job_id": 7, "job_state": ["RUNNING"]}]})),
        ("warnings and nothing else", of_reads(lambda *_: response({"warnings": [{"description": "x"}]}))),
        ("writes that hang", lambda method, _, truth: truth if method == "GET" else None),
        ("writes with errors", lambda method, _, truth: truth if method == "GET" else REFUSED),
        ("writes with half an answer", lambda method, _, truth: truth if method == "GET" else truth[:-1]),
    ],
)
async def test_no_worker_with_a_job_goes(case: str, lie: Lie) -> None:
    async with bench(runs=False) as it:
        rest = SlurmrestdInMemory(it.slurm)
        async with serving(rest.answer) as server, operator(it.api, client(server.endpoint)):
            await it.up(1)
            it.slurm.start(7, "w-0")
            await it.has(lambda: it.status.get("slurmAllocated") == 1)
            rest.lie = lie
            it.scale(0)
            requests = len(server.requests)
            await it.has(lambda: len(server.requests) > requests + 12)
            assert it.pods == ["w-0"], case
            rest.lie = lambda _method, _what, truth: truth
            it.slurm.end(7)
            await it.has(lambda: it.pods == [])
    assert it.api.deletions == [("w-0", [])]


@pytest.mark.parametrize("repeated", [{"nodes"}, {"jobs"}, {"nodes", "jobs"}])
async def test_old_answers_of_one_list_delete_no_worker(repeated: set[str]) -> None:
    """Of the time when the node was drained and idle, and the job was not there; the other list is true."""
    async with bench(runs=False) as it:
        rest = SlurmrestdInMemory(it.slurm)
        async with serving(rest.answer) as server, operator(it.api, client(server.endpoint)):
            await it.up(1)
            it.slurm.states["w-0"].add("DRAIN")
            it.slurm.reasons["w-0"] = "bad disk"
            await it.has(lambda: it.status.get("slurmDrain") == 1)
            old = dict(rest.last)
            it.slurm.states["w-0"] = {"IDLE"}
            it.slurm.start(7, "w-0")
            rest.lie = of_reads(lambda what, truth: old[what] if what in repeated else truth)
            it.scale(0)
            requests = len(server.requests)
            await it.has(lambda: len(server.requests) > requests + 12)
            assert it.pods == ["w-0"]


async def test_the_newest_answers_again_and_again_delete_no_worker() -> None:
    """The operator had drained the node for a cordon; since then somebody resumed it."""
    async with bench(runs=False) as it:
        rest = SlurmrestdInMemory(it.slurm)
        async with serving(rest.answer) as server, operator(it.api, client(server.endpoint)):
            await it.up(1)
            it.kubelet.annotate("w-0", pod_cordon="disk")
            await it.has(lambda: it.status.get("slurmDrain") == 1)
            newest = dict(rest.last)
            rest.lie = of_reads(lambda what, _: newest[what])
            it.slurm.states["w-0"] = {"IDLE"}
            it.slurm.start(7, "w-0")
            it.scale(0)
            requests = len(server.requests)
            await it.has(lambda: len(server.requests) > requests + 12)
            assert it.pods == ["w-0"]


async def test_old_answers_delete_no_worker() -> None:
    """Of the time when the node was drained and idle; since then it was resumed, and has a job."""
    async with bench(runs=False) as it:
        rest = SlurmrestdInMemory(it.slurm)
        async with serving(rest.answer) as server, operator(it.api, client(server.endpoint)):
            await it.up(1)
            it.slurm.states["w-0"].add("DRAIN")
            it.slurm.reasons["w-0"] = "red-box: scale-in"
            it.kubelet.annotate("w-0", pod_cordon="so that nobody resumes it")
            await it.has(lambda: it.status.get("slurmDrain") == 1)
            old = dict(rest.last)
            it.slurm.states["w-0"] = {"IDLE"}
            it.slurm.start(7, "w-0")
            await it.has(lambda: it.status.get("slurmAllocated") == 1)
            rest.lie = of_reads(lambda what, _: old[what])
            it.scale(0)
            await it.has(lambda: "older than an earlier one" in it.condition("Draining").get("message", ""))
            requests = len(server.requests)
            await it.has(lambda: len(server.requests) > requests + 12)
            assert it.pods == ["w-0"]


def client(endpoint: str) -> SlurmrestdClient:
    async def token() -> str:
        await asyncio.sleep(0)
        return "token-1"

    return SlurmrestdClient(endpoint, token=token, version=42, within_s=0.1)
