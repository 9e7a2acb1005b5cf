"""kubectl port-forward to a pod on a virtual node: connections to ports of the job's node."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_api.pod_report import PodReport
from redbox_kube.api.objects import ApiError
from redbox_resourced.kubelet.sessions import open_sessions, port_forward
from redbox_resourced.kubelet.sessions.job_sessions import RedboxSessions
from redbox_shared.wire import CONNECTION_RESET, MESSAGE_COST, PORTS_WINDOW
from tests.resourced.kubelet.sessions.harness import SUCCESS, Client, RedboxSide, echo, kubelet_api
from tests.resourced.kubelet.spdy import harness
from tests.resourced.kubelet.spdy.harness import data, pair
from tests.resourced.pods.factories import STARTED_AT, pod_job, running_pod


def connect(client: Client, request: str, port: str = "8888") -> tuple[int, int]:
    """The error stream first, as kubectl does."""
    error = client.open(streamType="error", port=port, requestID=request)
    return error, client.open(streamType="data", port=port, requestID=request)


async def test_connections_interleave_and_end_by_themselves() -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        assert client.headers["x-stream-protocol-version"] == "portforward.k8s.io"
        (_, first), (_, second) = connect(client, "0"), connect(client, "1", "9999")
        client.send(data(second, b"two") + data(first, b"one"))
        await client.until(lambda peer: peer.data_of(first) == b"one" and peer.data_of(second) == b"two")
        client.send(data(first, b"", is_last=True))
        await client.until(lambda peer: len(peer.of("fin")) == 2)
        assert {stream for stream, _ in client.peer.of("fin")} == {first - 2, first}
        client.send(data(second, b"more"))
        await client.until(lambda peer: peer.data_of(second) == b"twomore")
        assert [side.request for side in stand.redbox.connections] == [{"port": 8888}, {"port": 9999}]
        assert stand.redbox.forwards == 1


def has_echo(stream: int, peer: harness.Peer) -> bool:
    return peer.data_of(stream) == b"x"


async def test_a_declared_port_leads_to_the_one_that_was_chosen_on_the_node() -> None:
    report = PodReport.model_validate({"at": STARTED_AT, "ports": [{"port": 8888, "nodePort": 23456}]})
    async with kubelet_api() as stand:
        stand.redbox.job = stand.redbox.job.model_copy(update={"pod": report})
        client = await stand.forward()
        for request, port in (("0", "8888"), ("1", "9999")):
            _, stream = connect(client, request, port)
            client.send(data(stream, b"x"))
            await client.until(partial(has_echo, stream))
        assert [side.request for side in stand.redbox.connections] == [{"port": 23456}, {"port": 9999}]


async def test_a_port_without_a_server_is_a_sentence_on_the_error_stream() -> None:
    async def refuse(side: RedboxSide) -> None:
        await side.end({"status": "Failure", "message": "nobody listens on port 8888"})

    async with kubelet_api() as stand:
        stand.redbox.script = refuse
        client = await stand.forward()
        error, _ = connect(client, "0")
        await client.until(lambda peer: peer.of("reset"))
        assert b"nobody listens" in client.peer.data_of(error)


async def test_a_server_that_resets_a_connection_ends_no_other() -> None:
    """A text on the error stream would end kubectl's whole forward."""

    async def cut(side: RedboxSide) -> None:
        await side.send(1, b"half")
        await side.end({"status": "Failure", "reason": CONNECTION_RESET, "message": "reset"})

    async with kubelet_api() as stand:
        client = await stand.forward()
        _, other = connect(client, "0")
        client.send(data(other, b"one"))
        await client.until(lambda peer: peer.data_of(other) == b"one")
        stand.redbox.script = cut
        error, stream = connect(client, "1")
        await client.until(lambda peer: (error, None) in peer.of("fin"))
        assert client.peer.data_of(stream) == b"half"
        assert client.peer.data_of(error) == b""
        assert (stream, 5) in client.peer.of("reset")
        client.send(data(other, b"two"))
        await client.until(lambda peer: peer.data_of(other) == b"onetwo")


async def test_a_connection_whose_client_has_gone_is_closed_at_redbox() -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        _, stream = connect(client, "0")
        client.send(data(stream, b"x"))
        await client.until(lambda peer: peer.data_of(stream) == b"x")
        client.send(pair(harness.RST, stream, 5))
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_a_connection_whose_client_has_gone_is_closed_though_its_server_reads_nothing() -> None:
    async def grant_nothing(side: RedboxSide) -> None:
        while await side.next():
            pass

    async with kubelet_api() as stand:
        stand.redbox.script = grant_nothing
        client = await stand.forward()
        _, stream = connect(client, "0")
        client.send(data(stream, bytes(PORTS_WINDOW + 1000)))
        await client.writer.drain()
        while not any(len(b"".join(side.received)) > PORTS_WINDOW // 2 for side in stand.redbox.sides):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        client.send(pair(harness.RST, stream, 5))
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_a_client_that_leaves_closes_its_connections() -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        _, stream = connect(client, "0")
        client.send(data(stream, b"x"))
        await client.until(lambda peer: peer.data_of(stream) == b"x")
        client.writer.transport.abort()
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_a_server_that_closes_first_ends_both_streams() -> None:
    async def bye(side: RedboxSide) -> None:
        await side.send(1, b"bye")
        await side.send(255, b"\1")
        await side.end(SUCCESS)

    async with kubelet_api() as stand:
        stand.redbox.script = bye
        client = await stand.forward()
        error, stream = connect(client, "0")
        await client.until(lambda peer: len(peer.of("fin")) == 2)
        assert (client.peer.data_of(stream), client.peer.data_of(error)) == (b"bye", b"")


@pytest.mark.parametrize(
    "headers",
    [
        {"streamType": "data", "requestID": "0"},
        {"streamType": "data", "port": "0", "requestID": "0"},
        {"streamType": "data", "port": "65536", "requestID": "0"},
        {"streamType": "data", "port": "²", "requestID": "0"},
        {"streamType": "stdin", "port": "80", "requestID": "0"},
    ],
)
async def test_a_stream_without_a_port_or_a_type_is_reset(headers: dict[str, str]) -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        stream = client.open(**headers)
        await client.until(lambda peer: peer.of("reset"))
        assert client.peer.of("reset") == [(stream, 1)]
        assert not stand.redbox.sides


async def test_a_second_stream_of_one_type_is_reset_and_the_pair_goes_on() -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        client.open(streamType="error", port="80", requestID="0")
        second = client.open(streamType="error", port="80", requestID="0")
        stream = client.open(streamType="data", port="80", requestID="0")
        client.send(data(stream, b"x"))
        await client.until(lambda peer: peer.data_of(stream) == b"x")
        assert client.peer.of("reset") == [(second, 1)]


async def test_an_old_client_without_request_ids_is_served() -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        client.open(streamType="error", port="80")
        stream = client.open(streamType="data", port="80")
        client.send(data(stream, b"x"))
        await client.until(lambda peer: peer.data_of(stream) == b"x")


async def test_half_a_pair_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.sessions.port_forward.OPENING_S", 0.0)
    async with kubelet_api() as stand:
        client = await stand.forward()
        error = client.open(streamType="error", port="80", requestID="0")
        await client.until(lambda peer: peer.of("reset"))
        assert b"did not come in time" in client.peer.data_of(error)


async def test_connections_over_the_limit_are_refused_by_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_sessions, "MOST_CONNECTIONS", open_sessions.NAMESPACES)
    async with kubelet_api() as stand:
        client = await stand.forward()
        _, stream = connect(client, "0")
        client.send(data(stream, b"x"))
        await client.until(lambda peer: peer.data_of(stream) == b"x")
        error, _ = connect(client, "1")
        await client.until(lambda peer: peer.of("reset"))
        assert b"retry later" in client.peer.data_of(error)
        client.send(data(stream, b"", is_last=True))
        await client.until(lambda peer: (stream, None) in peer.of("fin"))
        _, stream = connect(client, "2")
        client.send(data(stream, b"again"))
        await client.until(lambda peer: peer.data_of(stream) == b"again")


async def test_a_connection_without_a_token_ends_and_the_forward_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        begun, refusals = RedboxSessions.begin_forward, [ApiError("no token now")]

        async def refuse(self: RedboxSessions) -> Any:
            if refusals:
                raise refusals.pop()
            return await begun(self)

        monkeypatch.setattr(RedboxSessions, "begin_forward", refuse)
        error, _ = connect(client, "0", "1")
        await client.until(lambda peer: b"no token now" in peer.data_of(error))
        _, stream = connect(client, "1")
        client.send(data(stream, b"x"))
        await client.until(lambda peer: peer.data_of(stream) == b"x")


async def test_a_forward_that_is_interrupted_resets_its_connections() -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        _, stream = connect(client, "0")
        client.send(data(stream, b"x"))
        await client.until(lambda peer: peer.data_of(stream) == b"x")
        for ended in stand.reconciler.on_delete:
            ended(running_pod())
        await client.until(lambda peer: (stream, 5) in peer.of("reset"))
        assert stream not in {number for number, _ in client.peer.of("fin")}


async def test_a_forward_without_connections_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with kubelet_api() as stand:
        client = await stand.forward()
        _, first = connect(client, "0")
        client.send(data(first, b"x"))
        await client.until(lambda peer: peer.data_of(first) == b"x")
        monkeypatch.setattr(port_forward, "UNUSED_S", 0.1)
        _, stream = connect(client, "1")
        client.send(data(stream, b"x") + data(first, b"", is_last=True))
        await client.until(lambda peer: peer.data_of(stream) == b"x")
        await client.until(lambda peer: (first, None) in peer.of("fin"))
        await asyncio.sleep(0.5)
        client.send(data(stream, b"y"))
        await client.until(lambda peer: peer.data_of(stream) == b"xy")
        client.send(data(stream, b"", is_last=True))
        await client.rest()


async def test_a_job_that_does_not_run_has_no_ports() -> None:
    async with kubelet_api() as stand:
        stand.redbox.job = pod_job(Phase.PENDING, state="PENDING")
        client = await stand.forward()
        assert (client.status, "the Slurm job is PENDING" in client.refusal["message"]) == (409, True)


async def test_half_pairs_that_are_reset_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_forward, "MOST_PAIRS", 3)
    async with kubelet_api() as stand:
        client = await stand.forward()
        opened = [client.open(streamType="data", port="80", requestID=str(number)) for number in range(8)]
        await client.until(lambda peer: (opened[-1], 3) in peer.of("reset"))
        for stream in opened:
            client.send(pair(harness.RST, stream, 5))
        last = client.open(streamType="data", port="80", requestID="last")
        await client.until(lambda peer: (last, 3) in peer.of("reset"))
        assert not stand.redbox.sides


async def test_after_a_forward_that_broke_at_redbox_the_next_connection_begins_one() -> None:
    async def break_off(side: RedboxSide) -> None:
        await side.next()
        await side.websocket.close()

    async with kubelet_api() as stand:
        stand.redbox.script = break_off
        client = await stand.forward()
        error, stream = connect(client, "0")
        client.send(data(stream, b"x"))
        await client.until(lambda peer: (stream, 5) in peer.of("reset"))
        assert b"without a status" in client.peer.data_of(error)
        stand.redbox.script = echo
        _, stream = connect(client, "1")
        client.send(data(stream, b"again"))
        await client.until(lambda peer: peer.data_of(stream) == b"again")
        assert stand.redbox.forwards == 2


async def test_a_job_that_sends_more_than_its_client_reads_waits() -> None:
    sent = 0

    async def flood(side: RedboxSide) -> None:
        nonlocal sent
        cost = MESSAGE_COST + (32 << 10)
        while sent + cost <= PORTS_WINDOW:
            await side.send(1, bytes(32 << 10))
            sent += cost
        assert await side.next() != b""  # credit, once the client reads

    async with kubelet_api() as stand:
        stand.redbox.script = flood
        client = await stand.forward()
        _, stream = connect(client, "0")
        while not stand.redbox.connections:  # noqa: ASYNC110 (it sets no event)
            await asyncio.sleep(0.01)
        side = stand.redbox.connections[0]
        await client.until(lambda peer: len(peer.data_of(stream)) >= 32 << 10)
        client.send(pair(harness.WINDOW, stream, 1 << 20))
        await client.until(lambda _: any(message[:1] == b"\7" for message in side.received))
