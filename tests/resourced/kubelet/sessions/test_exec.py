"""kubectl exec in a pod on a virtual node: what the API server sees, and what red-box is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from redbox_api.sessions.client import JobSession
from redbox_kube.api.objects import ApiUnreachable
from redbox_resourced.pods.pod_view import read_pod
from tests.resourced.kubelet.sessions.harness import (
    SUCCESS,
    RedboxSide,
    exit_code,
    kubelet_api,
    open_streams,
)
from tests.resourced.kubelet.spdy import harness
from tests.resourced.kubelet.spdy.harness import data, pair, ping
from tests.resourced.pods.factories import manifest, running_pod

PATHS = ["/exec/alice/train/main", "/attach/alice/train/main", "/portForward/alice/train"]
PROBLEM = "https://redbox.dev/problems/"


async def test_a_command_gets_its_input_and_gives_its_output_and_exit_code() -> None:
    async with kubelet_api() as stand:
        client = await stand.exec("cat", "-")
        assert client.status == 101
        assert client.headers["upgrade"] == "SPDY/3.1"
        assert client.headers["x-stream-protocol-version"] == "v4.channel.k8s.io"
        client.send(data(client.streams["stdin"], b"one\n") + ping(1))
        await client.until(lambda _: client.text("stdout") == b"one\n")
        client.send(data(client.streams["stdin"], b"", is_last=True))
        peer = await client.rest()
        assert client.final_status == SUCCESS
        assert peer.of("ping") == [(1, None)]
        assert {stream for stream, _ in peer.of("fin")} == set(client.streams.values())
        side = stand.redbox.sides[0]
        assert side.command == {
            "command": ["cat", "-"],
            "tty": False,
            "stdin": True,
            "container": "main",
            "attach": False,
            **dict.fromkeys(("node", "task", "size", "term")),
        }


async def test_a_session_is_the_pods_own_account_and_never_resourceds() -> None:
    async with kubelet_api(serviceAccountName="trainer") as stand:
        await stand.exec("true")
        await (await stand.forward()).reader.read(0)
        assert {side.token for side in stand.redbox.sides} == {
            "Bearer token of alice/trainer for redbox.dev/hpc1/x"
        }
        assert [bound and bound.name for bound in stand.api_server.tokens_of] == ["train"]


@pytest.mark.parametrize("error", [ApiUnreachable("no answer in time"), TimeoutError()])
async def test_without_a_token_of_the_pods_account_there_is_no_session(error: Exception) -> None:
    async with kubelet_api() as stand:
        stand.api_server.fail(error, verb="token")
        client = await stand.exec("true")
        assert (client.status, stand.redbox.sides) == (503, [])
        assert client.refusal["message"].endswith("no answer in time")


async def test_an_exit_code_and_both_outputs_arrive() -> None:
    async def fail(side: RedboxSide) -> None:
        await side.send(1, b"out")
        await side.send(2, b"err")
        await side.end(exit_code(7))

    async with kubelet_api() as stand:
        stand.redbox.script = fail
        client = await stand.exec("false")
        await client.rest()
        assert (client.text("stdout"), client.text("stderr")) == (b"out", b"err")
        assert client.final_status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


async def test_a_session_that_dies_at_redbox_is_a_failure_and_not_exit_code_0() -> None:
    async def die(side: RedboxSide) -> None:
        await side.send(1, b"out")

    async with kubelet_api() as stand:
        stand.redbox.script = die
        client = await stand.exec("true")
        await client.rest()
        assert client.final_status["status"] == "Failure"
        assert "without a status" in client.final_status["message"]


@pytest.mark.parametrize("status", [b"", b"[]", b"7", b'{"status": "Maybe"}', b"\xff"])
async def test_a_status_that_is_none_is_a_failure(status: bytes) -> None:
    async def end(side: RedboxSide) -> None:
        await side.send(3, status)

    async with kubelet_api() as stand:
        stand.redbox.script = end
        client = await stand.exec("true")
        await client.rest()
        assert client.final_status["status"] == "Failure"


async def test_the_window_sizes_of_a_terminal_reach_the_job() -> None:
    async def sizes(side: RedboxSide) -> None:
        while await side.next() not in {b"", b'\4{"Width":120,"Height":50}'}:
            pass
        await side.end(SUCCESS)

    async with kubelet_api() as stand:
        stand.redbox.script = sizes
        client = await stand.exec("bash", wanted="input output tty")
        resize = client.streams["resize"]
        client.send(data(resize, b'{"Width":80,"Height":24}\n'))
        await client.until(lambda peer: len(peer.of("reply")) == 4)
        client.send(data(resize, b'{"Width":0,"Height":1}\n{"Width":120,"Hei') + data(resize, b'ght":50}\n'))
        await client.rest()
        assert stand.redbox.sides[0].command["size"] == {"columns": 80, "rows": 24}
        assert client.final_status == SUCCESS


@pytest.mark.parametrize("tls", [False, True])
async def test_a_client_that_leaves_ends_the_session_at_redbox(*, tls: bool) -> None:
    async with kubelet_api(tls=tls) as stand:
        client = await stand.exec("sleep", "infinity")
        client.send(data(client.streams["stdin"], b"x"))
        await client.until(lambda _: client.text("stdout") == b"x")
        client.writer.transport.abort()
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_client_that_leaves_while_its_input_waits_ends_the_session_at_redbox(
    monkeypatch: pytest.MonkeyPatch, *, tls: bool
) -> None:
    """So much that nothing more is read of it, as of `kubectl exec -i pod -- sleep infinity < large`."""
    monkeypatch.setattr(JobSession, "send", lambda *_: asyncio.Future())
    monkeypatch.setattr("redbox_resourced.kubelet.client_transport.GONE_S", 0.05)
    async with kubelet_api(tls=tls) as stand:
        client = await stand.exec("sleep", "infinity")
        client.send(data(client.streams["stdin"], bytes(400_000)))
        await client.writer.drain()
        client.writer.close()
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_a_client_that_says_goaway_ends_the_session_at_redbox() -> None:
    async with kubelet_api() as stand:
        client = await stand.exec("sleep", "infinity")
        client.send(data(client.streams["stdin"], b"x"))
        await client.until(lambda _: client.text("stdout") == b"x")
        client.send(pair(harness.GOAWAY, 0, 0))
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_a_deleted_pod_ends_its_sessions_with_a_status() -> None:
    async with kubelet_api() as stand:
        client = await stand.exec("sleep", "infinity")
        client.send(data(client.streams["stdin"], b"x"))
        await client.until(lambda _: client.text("stdout") == b"x")
        for ended in stand.reconciler.on_delete:
            ended(running_pod())
        await client.rest()
        assert "the pod was deleted" in client.final_status["message"]


async def test_a_stopping_resourced_ends_its_sessions_with_a_status() -> None:
    async with kubelet_api() as stand:
        client = await stand.exec("sleep", "infinity")
        client.send(data(client.streams["stdin"], b"x"))
        await client.until(lambda _: client.text("stdout") == b"x")
        stopping = asyncio.create_task(stand.stop())
        await client.until(lambda _: client.text("error"))
        assert "stopping" in client.final_status["message"]
        await stopping


async def test_a_command_of_half_a_mebibyte_reaches_the_job() -> None:
    async with kubelet_api() as stand:
        client = await stand.exec("echo", "x" * 500_000)
        assert client.status == 101
        client.send(data(client.streams["stdin"], b"", is_last=True))
        await client.rest()
        assert stand.redbox.sides[0].command["command"] == ["echo", "x" * 500_000]


async def test_over_tls_a_session_carries_more_than_any_buffer_holds_and_ends() -> None:
    content = b"0123456789abcdef" * 100_000
    async with kubelet_api(tls=True) as stand:
        client = await stand.exec("cat")
        stdin = client.streams["stdin"]

        async def send() -> None:
            for begin in range(0, len(content), 32768):
                client.send(data(stdin, content[begin : begin + 32768]))
                await client.writer.drain()
            client.send(data(stdin, b"", is_last=True))

        sending = asyncio.create_task(send())
        await client.rest()
        await sending
        assert client.text("stdout") == content
        assert client.final_status == SUCCESS


@pytest.mark.parametrize("tls", [False, True])
async def test_much_output_arrives_whole(*, tls: bool) -> None:
    async def much(side: RedboxSide) -> None:
        for count in range(100):
            await side.send(1, bytes([count]) * 50_000)
        await side.end(SUCCESS)

    async with kubelet_api(tls=tls) as stand:
        stand.redbox.script = much
        client = await stand.exec("cat")
        await client.rest()
        assert client.text("stdout") == b"".join(bytes([count]) * 50_000 for count in range(100))


async def test_a_client_that_breaks_the_protocol_is_sent_away_and_its_session_ends() -> None:
    async with kubelet_api() as stand:
        client = await stand.exec("cat")
        client.send(pair(harness.WINDOW, 0, 2**31 - 1))
        peer = await client.rest()
        assert peer.of("goaway")[0][1] == 1
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_streams_that_were_not_asked_for_are_reset() -> None:
    async with kubelet_api() as stand:
        client = await stand.request("/exec/alice/train/main", [("command", "true"), ("output", "1")])
        unknown, second = client.open(streamType="extra"), client.open(streamType="stderr")
        open_streams(client, "output")
        await client.until(lambda peer: len(peer.of("reset")) == 2)
        assert [stream for stream, _ in client.peer.of("reset")] == [unknown, second]


async def test_a_second_input_is_reset_and_reaches_no_command() -> None:
    async with kubelet_api() as stand:
        client = await stand.exec("cat")
        first = client.streams["stdin"]
        second = client.open(streamType="stdin")
        client.send(data(second, b"of the second\n"))
        await client.until(lambda peer: peer.of("reset"))
        client.send(data(first, b"of the first\n", is_last=True))
        await client.rest()
        assert [stream for stream, _ in client.peer.of("reset")] == [second]
        assert client.text("stdout") == b"of the first\n"
        assert client.final_status == SUCCESS


async def test_two_clients_with_the_same_command_have_an_input_each() -> None:
    async with kubelet_api() as stand:
        clients = [await stand.exec("cat") for _ in range(2)]
        for client, sent in zip(clients, (b"one", b"two"), strict=True):
            client.send(data(client.streams["stdin"], sent, is_last=True))
        for client in clients:
            await client.rest()
        assert [client.text("stdout") for client in clients] == [b"one", b"two"]


async def test_streams_that_never_come_end_the_session_with_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.sessions.client_streams.OPENING_S", 0.05)
    async with kubelet_api() as stand:
        client = await stand.request("/exec/alice/train/main", [("command", "true"), ("output", "1")])
        client.open(streamType="error")
        await client.rest()
        assert client.final_status["message"].endswith("in time: stdout")


@pytest.mark.parametrize(
    ("status", "answered"), [(403, 403), (401, 403), (404, 404), (422, 400), (503, 503), (500, 400)]
)
async def test_a_refusal_of_redbox_is_a_status_with_its_own_sentence(status: int, answered: int) -> None:
    problem = {"type": PROBLEM + "x", "title": "No session", "status": status, "detail": "the job is PENDING"}
    async with kubelet_api() as stand:
        stand.redbox.refusal = web.json_response(problem, status=status)
        client = await stand.exec("true")
        assert (client.status, client.refusal["kind"], client.refusal["apiVersion"]) == (
            answered,
            "Status",
            "v1",
        )
        assert "the job is PENDING" in client.refusal["message"]


async def test_an_answer_of_another_server_is_no_refusal_of_redbox() -> None:
    async with kubelet_api() as stand:
        stand.redbox.refusal = web.Response(text="hello")
        client = await stand.exec("true")
        assert (client.status, client.refusal["reason"]) == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    "path", ["/exec/alice/train/main", "/attach/alice/train/main", "/portForward/alice/train"]
)
@pytest.mark.parametrize("method", ["DELETE", "PUT"])
async def test_only_post_and_get_open_a_session(path: str, method: str) -> None:
    async with kubelet_api() as stand:
        client = await stand.request(path, [("command", "true"), ("output", "1")], method=method)
        assert (client.status, client.headers["allow"]) == (405, "GET, POST")
        assert "by POST" in client.refusal["message"]
        assert not stand.redbox.sides


@pytest.mark.parametrize(
    "path", ["/exec/alice/train/main", "/attach/alice/train/main", "/portForward/alice/train"]
)
async def test_a_session_needs_the_right_to_create_on_nodes_proxy(path: str) -> None:
    def reads(attributes: Mapping[str, Any]) -> bool:
        return bool(attributes["verb"] == "get")

    async with kubelet_api() as stand:
        stand.api_server.allowed = reads
        client = await stand.request(path, [("command", "true"), ("output", "1")])
        assert (client.status, client.refusal["kind"]) == (403, "Status")
        asked = [review["resourceAttributes"] for review in stand.api_server.reviews]
        assert {(item["verb"], item["subresource"], item["name"]) for item in asked} == {
            ("create", "proxy", "hpc1.debug")
        }


@pytest.mark.parametrize(
    ("path", "query", "status", "message"),
    [
        ("/exec/alice/other/main", "command=x&output=1", 404, "not on a virtual node"),
        ("/exec/alice/train/other", "command=x&output=1", 404, "container other"),
        ("/exec/alice/train/main", "output=1", 400, "a command is required"),
        ("/exec/alice/train/main", "command=x", 400, "at least 1 of stdin"),
    ],
)
async def test_a_request_without_a_session_is_a_status(
    path: str, query: str, status: int, message: str
) -> None:
    pairs = [(name, value) for name, _, value in (item.partition("=") for item in query.split("&"))]
    async with kubelet_api() as stand:
        client = await stand.request(path, pairs)
        assert client.status == status
        assert message in client.refusal["message"]
        assert not stand.redbox.sides


async def test_a_request_for_another_protocol_is_refused() -> None:
    query = [("command", "x"), ("output", "1")]
    async with kubelet_api() as stand:
        client = await stand.request("/exec/alice/train/main", query, upgrade="websocket")
        assert client.status == 400
        client = await stand.request("/exec/alice/train/main", query, protocols=("channel.k8s.io",))
        assert client.status == 403
        assert "v4.channel.k8s.io" in client.headers["x-accepted-stream-protocol-versions"]
        assert not stand.redbox.sides


async def test_a_pod_that_has_ended_has_no_sessions() -> None:
    async with kubelet_api() as stand:
        stand.serve(running_pod("Succeeded"))
        client = await stand.exec("true")
        assert (client.status, "has ended" in client.refusal["message"]) == (400, True)


async def test_a_second_attempt_of_a_slurmjob_is_entered_as_such() -> None:
    owner = {
        "apiVersion": "redbox.dev/v1",
        "kind": "SlurmJob",
        "name": "t",
        "uid": "uid-of-t",
        "controller": True,
    }
    companion = {"name": "main", "env": [{"name": "REDBOX_ATTEMPT", "value": "2"}]}
    async with kubelet_api() as stand:
        stand.serve(
            read_pod(
                manifest(metadata={"ownerReferences": [owner | {"controller": True}]}, containers=[companion])
            )
        )
        client = await stand.exec("true")
        client.send(data(client.streams["stdin"], b"", is_last=True))
        await client.rest()
        side = stand.redbox.sides[0]
        assert (side.path, side.query["attempt"]) == ("/v1/jobs/uid-of-t/exec", "2")
        assert side.command["container"] is None
