"""The client of slurmrestd: what it reads, and each way in which an answer is none."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redbox_hosting.build.config.node_conf import BadSize
from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import (
    BadNodeState,
    NodesBusy,
    NoSuchNode,
    NotServed,
    SlurmRefusal,
    SlurmrestdError,
    SlurmUnknown,
    SlurmUnreachable,
    TokenRefused,
)
from redbox_hosting.slurm.old_reasons import OldReasons
from redbox_hosting.slurm.snapshot import read_snapshot
from redbox_kube.controller.steps import StepFailed
from tests.hosting.slurm.scripted_server import ScriptedServer, response, serving

NODE = {
    "name": "w-0",
    "state": ["IDLE", "DRAIN"],
    "reason": "red-box: scale-in",
    "address": "10.1.2.3",
    "instance_id": "uid-1",
    "boot_time": {"set": True, "infinite": False, "number": 1700000000},
    "partitions": ["all"],
    "version": "26.05.5",
    "a_new_field": {"x": 1},
}
JOB = {
    "job_id": 7,
    "job_state": ["RUNNING"],
    "nodes": "w-[0-2],x",
    "required_nodes": "",
    "user_name": "alice",
    "start_time": {"set": True, "infinite": False, "number": 1700000000},
    "end_time": {"set": False, "infinite": False, "number": 0},
}


def error(number: int, text: str = "words") -> dict[str, Any]:
    return {"errors": [{"error_number": number, "error": text, "description": text, "source": "x"}]}


@asynccontextmanager
async def asking(
    answer: Callable[[str, str], bytes | None] | bytes | None,
    *,
    version: int | None = 42,
    within_s: float = 5.0,
    keeps_sending: bytes = b"",
) -> AsyncIterator[tuple[SlurmrestdClient, ScriptedServer]]:
    async def token() -> str:
        return "token-1"

    answers = answer if callable(answer) else lambda method, path: answer  # noqa: ARG005
    async with serving(answers, keeps_sending=keeps_sending) as server:
        yield SlurmrestdClient(server.endpoint, token=token, version=version, within_s=within_s), server


async def fails(
    answer: Callable[[str, str], bytes | None] | bytes | None,
    kind: type[SlurmrestdError],
    ask: Callable[[SlurmrestdClient], Awaitable[object]] = SlurmrestdClient.nodes,
    **more: Any,
) -> str:
    async with asking(answer, **more) as (client, _):
        with pytest.raises(SlurmrestdError) as raised:
            await ask(client)
    assert type(raised.value) is kind
    return str(raised.value)


async def test_a_node_is_read_with_its_states_and_identity() -> None:
    async with asking(response({"nodes": [NODE], "errors": [], "warnings": [{"x": 1}]})) as (client, server):
        (node,) = await client.nodes()
    assert node.state == {"IDLE", "DRAIN"}
    assert (node.reason, node.address, node.instance_id) == ("red-box: scale-in", "10.1.2.3", "uid-1")
    assert node.boot_time == 1700000000
    assert server.requests == [("GET", "/slurm/v0.0.42/nodes/", None)]
    assert server.tokens == ["token-1"]


async def test_a_job_is_read_with_its_nodes_expanded() -> None:
    job = {**JOB, "required_nodes": "w-1,w-2"}
    async with asking(response({"jobs": [job]})) as (client, _):
        (row,) = await client.jobs()
    assert row.nodes == ("w-0", "w-1", "w-2", "x")
    assert row.required_nodes == ("w-1", "w-2")
    assert (row.start_time, row.end_time) == (1700000000, None)


async def test_the_marker_is_a_license() -> None:
    async with asking(response({"licenses": [{"LicenseName": "redbox-config-abc", "Total": 1}]})) as (
        client,
        _,
    ):
        assert await client.licenses() == {"redbox-config-abc"}


@pytest.mark.parametrize("served", [45, 42, 40])
async def test_the_newest_version_that_is_served_is_taken_once(served: int) -> None:
    def answer(_: str, path: str) -> bytes:
        found = re.match(r"/slurm/v0\.0\.(\d+)/", path)
        if not found or int(found[1]) > served:
            return response(b"Unable to find requested URL", 404)
        return response({"errors": [], "nodes": [NODE]})

    async with asking(answer, version=None) as (client, server):
        await client.nodes()
        await client.nodes()
    paths = [path for _, path, _ in server.requests]
    assert paths[-2:] == [f"/slurm/v0.0.{served}/nodes/"] * 2
    assert len(paths) == 45 - served + 3


async def test_after_an_upgrade_the_version_is_looked_for_again() -> None:
    served = {42}

    def answer(_: str, path: str) -> bytes:
        if not any(path.startswith(f"/slurm/v0.0.{version}/") for version in served):
            return response(b"Unable to find requested URL", 404)
        return response({"errors": [], "nodes": [NODE]})

    async with asking(answer, version=None) as (client, server):
        await client.nodes()
        served.clear()
        served.add(44)
        with pytest.raises(NotServed):
            await client.nodes()
        await client.nodes()
    assert server.requests[-1][1] == "/slurm/v0.0.44/nodes/"


async def test_a_job_without_its_nodes_is_no_answer() -> None:
    """It would be on no node, so that its pod could go."""
    job = {key: value for key, value in JOB.items() if key != "nodes"}
    await fails(response({"jobs": [job]}), SlurmUnknown, SlurmrestdClient.jobs)


def test_an_error_of_slurm_or_of_a_size_fails_its_step_only() -> None:
    assert issubclass(SlurmrestdError, StepFailed)
    assert issubclass(BadSize, StepFailed)


async def test_no_version_that_we_read_is_said() -> None:
    said = await fails(response(b"no", 404), NotServed, version=None)
    assert said == "slurmrestd serves none of v0.0.40 to v0.0.45"


@pytest.mark.parametrize(
    ("ask", "method", "path", "body"),
    [
        (
            lambda c: c.drain("w-0", "red-box: x"),
            "POST",
            "node/w-0",
            {"state": ["DRAIN"], "reason": "red-box: x"},
        ),
        (
            lambda c: c.down("w-0", "red-box: x"),
            "POST",
            "node/w-0",
            {"state": ["DOWN"], "reason": "red-box: x"},
        ),
        (lambda c: c.resume("w-0"), "POST", "node/w-0", {"state": ["RESUME"]}),
        (lambda c: c.set_address("w-0", "127.0.0.1"), "POST", "node/w-0", {"address": ["127.0.0.1"]}),
        (lambda c: c.delete_node("w-0"), "DELETE", "node/w-0", None),
        (lambda c: c.new_node("nodename=w-0"), "POST", "new/node/", {"node_conf": "nodename=w-0"}),
        (lambda c: c.reconfigure(), "GET", "reconfigure/", None),
    ],
)
async def test_writes(
    ask: Callable[[SlurmrestdClient], Awaitable[None]], method: str, path: str, body: object
) -> None:
    async with asking(response({"errors": []})) as (client, server):
        await ask(client)
    assert server.requests == [(method, f"/slurm/v0.0.42/{path}", body)]


# ------------------------------------------------------------------------------------------------ no answers
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (2016, NodesBusy),
        (2028, BadNodeState),
        (2180, BadNodeState),
        (1007, TokenRefused),
        (9207, SlurmRefusal),
    ],
)
@pytest.mark.parametrize("status", [200, 422, 500])
async def test_an_error_is_one_whatever_the_status(
    number: int, kind: type[SlurmrestdError], status: int
) -> None:
    said = await fails(
        response(error(number, "Requested nodes are busy"), status), kind, lambda c: c.delete_node("w-0")
    )
    assert said == f"DELETE /slurm/v0.0.42/node/w-0: Requested nodes are busy ({number})"


async def test_a_record_that_is_gone_is_deleted() -> None:
    async with asking(response(error(2018, "Invalid node name specified"), 500)) as (client, _):
        await client.delete_node("w-0")


async def test_nodes_beside_errors_are_no_nodes() -> None:
    await fails(response({"nodes": [NODE], **error(5)}), SlurmRefusal)


async def test_an_error_that_says_nothing_is_an_error() -> None:
    await fails(response({"nodes": [NODE], "errors": [{}]}), SlurmRefusal)


@pytest.mark.parametrize("errors", ["text", {"a": 1}, [1], ["x"]])
async def test_errors_that_cannot_be_read_make_no_answer(errors: object) -> None:
    await fails(response({"nodes": [NODE], "errors": errors}), SlurmUnknown)


@pytest.mark.parametrize("status", [502, 504])
async def test_502_and_504_are_unknown_with_any_body(status: int) -> None:
    said = await fails(response({"nodes": [NODE], **error(2028)}, status), SlurmUnreachable)
    assert said.endswith(f"HTTP {status}: slurmctld does not answer")


@pytest.mark.parametrize("status", [401, 511])
async def test_an_expired_token_is_named(status: int) -> None:
    await fails(response(b"Authentication failure", status), TokenRefused)


@pytest.mark.parametrize("status", [301, 403, 500, 503])
async def test_a_status_without_a_reason_is_unknown(status: int) -> None:
    await fails(response({"nodes": [NODE]}, status), SlurmUnknown)


@pytest.mark.parametrize("found", [[], [{**NODE, "name": "w-1"}]])
async def test_a_missing_node_and_another_one_are_unknown(found: list[dict[str, Any]]) -> None:
    said = await fails(response({"nodes": found}), SlurmUnknown, lambda c: c.node("w-0"))
    assert said == "node w-0: the answer does not have it"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{",
        b"{}",
        b'{"nodes": null}',
        b'{"nodes": [{"name": "w-0"}]}',
        b'{"nodes": [{"name": "w-0", "state": []}]}',
        b'{"nodes": [{"name": "w-0", "state": null}]}',
        b'{"nodes": [{"state": ["IDLE"]}]}',
        b'{"nodes": [7]}',
        b'{"nodes": ' + b"[" * 1000 + b"]" * 1000 + b"}",
        b"\xff\xfe",
    ],
)
async def test_nonsense_is_unknown(body: bytes) -> None:
    await fails(response(body), SlurmUnknown)


async def test_half_an_answer_is_unknown() -> None:
    await fails(response(b'{"nodes": []', length=1000), SlurmUnknown)


async def test_a_connection_that_is_closed_is_unknown() -> None:
    await fails(b"", SlurmUnknown)


async def test_nobody_at_the_address_is_unknown() -> None:
    async def token() -> str:
        return ""

    client = SlurmrestdClient("http://127.0.0.1:1", token=token, version=42)
    with pytest.raises(SlurmUnknown):
        await client.nodes()


async def test_no_answer_in_time_is_unknown() -> None:
    assert (await fails(None, SlurmUnknown, within_s=0.2)).endswith("no answer within 0.2 s")


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 X\r\n", b"a: b\r\n"),
        (b"HTTP/1.1 200 X\r\na: ", b"b" * 1000),
        (b"", b"\0" * 1000),
    ],
)
async def test_an_answer_without_an_end_is_unknown(head: bytes, more: bytes) -> None:
    await fails(head, SlurmUnknown, within_s=0.5, keeps_sending=more)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b'HTTP/1.1 200 X\r\ncontent-length: 12\r\ncontent-length: 2\r\n\r\n{"nodes":[]}',
        b'HTTP/1.1 200 X\r\ncontent-length: -1\r\n\r\n{"nodes":[]}',
        b'HTTP/1.1 200 X\r\n\r\n{"nodes":[]}',
        b'HTTP/1.1 200 X\r\nno header\r\n\r\n{"nodes":[]}',
        b'HTTP/2 200 X\r\ncontent-length: 12\r\n\r\n{"nodes":[]}',
        b'SSH-2.0-OpenSSH\r\n\r\n{"nodes":[]}',
    ],
)
async def test_what_is_no_plain_response_is_unknown(raw: bytes) -> None:
    await fails(raw, SlurmUnknown)


async def test_of_two_responses_to_one_request_the_first_counts() -> None:
    """As slurmrestd 26.05 answers what fails."""
    first = response(error(2018, "Invalid node name specified"), 422)
    second = b"HTTP/1.1 422 X\r\nconnection: Close\r\ncontent-length: 4\r\n\r\nwhat"
    said = await fails(first + second, NoSuchNode, lambda c: c.resume("w-9"))
    assert said == "POST /slurm/v0.0.42/node/w-9: Invalid node name specified (2018)"


async def test_a_token_that_would_add_a_header_is_not_sent() -> None:
    async def token() -> str:
        return "a\r\nx-slurm-user-name: root"

    async with serving(lambda *_: response({})) as server:
        with pytest.raises(SlurmUnknown, match="x-slurm-user-token cannot be sent"):
            await SlurmrestdClient(server.endpoint, token=token, version=42).nodes()
    assert server.requests == []


async def test_an_answer_that_is_too_large_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    from redbox_api.limits.answer_limits import AnswerLimits  # noqa: PLC0415

    monkeypatch.setattr("redbox_hosting.slurm.client.LIMITS", AnswerLimits(longest=1000))
    said = await fails(response(b" " * 2000), SlurmUnknown)
    assert "an answer of more than" in said


@pytest.mark.parametrize("name", ["", "../jobs", "a/b", "a?b", "a b", "a\r\nb", "x" * 300])
async def test_a_name_that_would_ask_for_something_else_is_not_sent(name: str) -> None:
    async with asking(response({"errors": []})) as (client, server):
        with pytest.raises(SlurmUnknown, match="is not a node's name"):
            await client.delete_node(name)
    assert server.requests == []


# ---------------------------------------------------------------------------------------- the snapshot
def everything(_: str, path: str) -> bytes:
    ended = {**JOB, "job_id": 8, "job_state": ["COMPLETED"]}
    completing = {**JOB, "job_id": 9, "job_state": ["CANCELLED", "COMPLETING"]}
    waiting = {**JOB, "job_id": 10, "job_state": ["PENDING"], "nodes": "", "required_nodes": "w-0"}
    bodies: dict[str, object] = {
        "nodes": {"nodes": [NODE]},
        "jobs": {"jobs": [JOB, ended, completing, waiting]},
        "reservations": {"reservations": [{"name": "maint", "node_list": "w-[0-1]"}]},
    }
    return response(bodies[path.strip("/").rpartition("/")[2]])


async def test_a_snapshot_knows_which_jobs_hold_a_node() -> None:
    async with asking(everything) as (client, _):
        snapshot = await read_snapshot(client, 5.0, OldReasons())
    assert snapshot.unknown == ""
    assert isinstance(snapshot.nodes["w-0"], RestNode)
    assert [job.job_id for job in snapshot.jobs_on("w-0")] == [7, 9]
    assert [job.job_id for job in snapshot.pending_for("w-0")] == [10]
    assert snapshot.reservations_of("w-1") == ["maint"]


@pytest.mark.parametrize("part", ["nodes", "jobs", "reservations"])
async def test_a_snapshot_with_a_part_missing_is_unknown(part: str) -> None:
    def answer(method: str, path: str) -> bytes:
        return response(error(1), 200) if part in path else everything(method, path)

    async with asking(answer) as (client, _):
        snapshot = await read_snapshot(client, 5.0, OldReasons())
    assert "words (1)" in snapshot.unknown
    assert not snapshot.nodes
