"""A connection that speaks SPDY: what its peer sees, and what it holds at most."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from redbox_resourced.kubelet.spdy.errors import StreamEnded
from redbox_resourced.kubelet.spdy.held_pieces import PIECE_COST
from redbox_resourced.kubelet.spdy.limits import SpdyLimits
from redbox_resourced.kubelet.spdy.session import MAX_PIECE, SERVED_S
from redbox_resourced.kubelet.spdy.windows import DEFAULT_WINDOW, GRANT_FROM
from redbox_resourced.kubelet.turns import TURN_S, NamespaceTurns, Turn
from tests.resourced.kubelet.spdy import harness
from tests.resourced.kubelet.spdy.conversations import SMALL, Conversation, conversation
from tests.resourced.kubelet.spdy.harness import Peer, data, pair, ping, settings

INITIAL_WINDOW = 7


async def test_a_stream_is_confirmed_and_carries_bytes_both_ways() -> None:
    async with conversation() as talk:
        stream = await talk.opened(streamType="stdin")
        assert (stream.number, stream.headers) == (1, {"streamtype": "stdin"})
        talk.send(data(1, b"in"), data(1, b"", is_last=True))
        assert [await stream.read(), await stream.read(), await stream.read()] == [b"in", b"", b""]
        await stream.write(b"out")
        stream.finish(b"last")
        await talk.settle()
        assert talk.peer.received == [
            ("reply", 1, {}),
            ("data", 1, b"out"),
            ("data", 1, b"last"),
            ("fin", 1, None),
        ]
        assert talk.session.open_streams == 0
        with pytest.raises(StreamEnded):
            await stream.write(b"more")


async def test_a_large_write_is_many_frames() -> None:
    async with conversation() as talk:
        stream = await talk.opened()
        await stream.write(b"x" * (3 * MAX_PIECE + 1))
        await talk.settle()
        assert [len(value) for _, value in talk.peer.of("data")] == [MAX_PIECE] * 3 + [1]  # type: ignore[arg-type]


async def test_the_peers_pings_are_answered_and_no_others() -> None:
    async with conversation() as talk:
        talk.send(ping(1), ping(2), ping(3))
        await talk.settle()
        assert talk.peer.of("ping") == [(1, None), (3, None)]


async def test_a_peer_that_resets_a_stream_ends_it_in_both_directions() -> None:
    async with conversation() as talk:
        stream = await talk.opened()
        talk.send(data(1, b"before"), pair(harness.RST, 1, 5))
        assert [await stream.read(), await stream.read()] == [b"before", b""]
        assert stream.was_reset
        with pytest.raises(StreamEnded):
            await stream.write(b"x")


@pytest.mark.parametrize("end", [b"", pair(harness.GOAWAY, 1, 0)])
async def test_when_the_peer_leaves_whoever_waits_is_woken(end: bytes) -> None:
    async with conversation() as talk:
        stream = await talk.opened()
        reading, accepting = asyncio.create_task(stream.read()), asyncio.create_task(talk.session.accept())
        talk.send(end)
        async with asyncio.timeout(60):
            assert (await reading, await accepting) == (b"", None)
            await talk.session.ended.wait()


@pytest.mark.parametrize(
    "sent",
    [
        lambda peer: peer.open_as(2, {}),
        lambda peer: peer.open_as(5, {}) + peer.open_as(3, {}),
        lambda _: pair(harness.WINDOW, 0, 2**31 - 1),
        lambda _: b"\x80\x02" + b"\0" * 6,
    ],
)
async def test_a_peer_that_breaks_the_protocol_is_sent_away(sent: Callable[[Peer], bytes]) -> None:
    async with conversation() as talk:
        talk.send(sent(talk.peer), b"\0" * 64)
        await asyncio.wait_for(talk.session.ended.wait(), 60)
        await talk.settle()
        assert [status for _, status in talk.peer.of("goaway")] == [1]
        assert talk.session.problem


async def test_streams_over_the_limit_are_refused_and_those_that_end_make_room() -> None:
    async with conversation(SMALL) as talk:
        streams = [await talk.opened() for _ in range(3)]
        talk.send(talk.peer.open({})[1])
        await talk.settle()
        assert talk.peer.of("reset") == [(7, 3)]
        streams[0].reset()
        again = await talk.opened()
        assert (again.number, talk.session.open_streams) == (9, 3)


async def test_streams_that_are_opened_and_reset_without_end_hold_no_memory() -> None:
    async with conversation(SMALL) as talk:
        for _ in range(50):
            stream, syn = talk.peer.open({"a": "b"})
            talk.send(syn + pair(harness.RST, stream, 5))
        await talk.settle()
        assert talk.session.open_streams == 0
        accepting = asyncio.create_task(talk.session.accept())
        await talk.settle()
        assert not accepting.done()  # of those that were reset nobody hears
        accepting.cancel()


async def test_new_streams_take_from_the_turn_what_it_costs_to_serve_them() -> None:
    async with conversation() as talk:
        talk.send(b"".join(talk.peer.open({})[1] for _ in range(200)))
        await asyncio.sleep(0)
        for rounds in range(1, 5):
            await asyncio.sleep(0)
            assert talk.session.open_streams <= (rounds + 1) * (TURN_S / SERVED_S + 1)
        async with asyncio.timeout(60):
            while talk.session.open_streams < 200:  # noqa: ASYNC110 (polled)
                await asyncio.sleep(0)


async def test_a_session_that_wants_no_more_streams_refuses_them_whatever_their_headers() -> None:
    async with conversation() as talk:
        stream = await talk.opened(streamType="stdin")
        talk.send(talk.peer.open({"streamType": "waits to be accepted"})[1])
        await talk.settle()
        talk.session.refuse_streams()
        talk.send(harness.control(harness.SYN_STREAM, struct.pack(">IIBB", 5, 0, 0, 0) + b"no zlib"))
        talk.send(data(5, b"x" * 300_000), data(1, b"in"))
        assert await asyncio.wait_for(stream.read(), 60) == b"in"
        await talk.settle()
        assert talk.peer.of("reset") == [(3, 3), (5, 3)]
        assert (talk.session.open_streams, talk.session.held_bytes) == (1, 2 + PIECE_COST)


async def test_a_full_inbox_stops_the_connection_until_it_is_read() -> None:
    async with conversation(SMALL) as talk:
        stream = await talk.opened()
        talk.send(*[data(1, b"x" * 60) for _ in range(10)])
        await talk.settle()
        assert talk.wire.incoming.qsize() == 9
        assert talk.session.held_bytes == 60 + PIECE_COST
        read = 0
        async with asyncio.timeout(60):
            while read < 600:
                read += len(await stream.read())
        stream.discard_input()
        await talk.settle()
        assert (talk.wire.incoming.qsize(), talk.session.held_bytes) == (0, 0)


async def test_what_readers_have_taken_and_not_passed_on_counts_for_the_connection() -> None:
    limits = SpdyLimits(streams=9, stream_bytes=10_000, session_bytes=2_000)
    async with conversation(limits) as talk:
        streams = [await talk.opened() for _ in range(9)]
        for stream in streams:
            talk.send(data(stream.number, bytes(1_000)))
        first = [await streams[0].read(), await streams[1].read()]
        await talk.settle()
        assert ([len(piece) for piece in first], talk.wire.incoming.qsize()) == ([1_000] * 2, 7)
        reading = asyncio.create_task(streams[0].read())  # it has passed on what it had
        await talk.settle()
        assert talk.wire.incoming.qsize() == 6
        reading.cancel()


async def test_one_read_of_many_small_frames_is_held_only_up_to_the_limit() -> None:
    async with conversation() as talk:
        stream, count = await talk.opened(), 50_000
        talk.send(data(1, b"ab") * count)
        await talk.settle()
        assert talk.session.held_bytes <= SpdyLimits.stream_bytes + PIECE_COST + 2
        read = b""
        async with asyncio.timeout(60):
            while len(read) < 2 * count:
                read += await stream.read()
        assert read == b"ab" * count


async def test_one_read_of_many_frames_leaves_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.turns.TURN_S", -1.0)
    async with conversation() as talk:
        count, turns = 100, 0
        talk.send(b"".join(ping(1) for _ in range(count)))
        async with asyncio.timeout(60):
            while len(talk.wire.sent) < count * len(ping(1)):
                await asyncio.sleep(0)
                turns += 1
        assert turns >= count


async def test_the_connections_of_a_namespace_have_one_turn_together_in_each_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many there are, others wait for one."""
    monkeypatch.setattr("redbox_resourced.kubelet.turns.TURN_S", 0.0)
    turns = NamespaceTurns()
    flooding = [Conversation(turn=turns.of("alice")) for _ in range(20)]
    other = Conversation(turn=turns.of("bob"))
    running = [asyncio.create_task(talk.session.run()) for talk in (*flooding, other)]
    one = len(ping(1))
    for talk in flooding:
        talk.send(ping(1) * 1000)
    for _ in range(10):
        await asyncio.sleep(0)
    before = sum(len(talk.wire.sent) for talk in flooding)
    other.send(ping(1))
    rounds = 0
    while not other.wire.sent:
        await asyncio.sleep(0)
        rounds += 1
    assert sum(len(talk.wire.sent) for talk in flooding) - before <= rounds * one
    assert before > 0
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_what_a_session_writes_is_copied_in_its_namespaces_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[int] = []

    async def note(_: Turn, size: int) -> None:
        copied.append(size)

    monkeypatch.setattr(Turn, "copied", note)
    async with conversation() as talk:
        stream = await talk.opened()
        await stream.write(b"x" * 40_000)
    assert sum(copied) == 40_000


async def test_a_peer_that_goes_while_nothing_is_read_of_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.client_transport.GONE_S", 0.01)
    async with conversation(SMALL) as talk:
        stream = await talk.opened()
        talk.send(data(1, bytes(SMALL.stream_bytes)))
        await asyncio.sleep(0.05)
        assert not talk.session.ended.is_set()
        talk.wire.has_gone = True
        await asyncio.wait_for(talk.session.ended.wait(), 60)
        assert await stream.read() == bytes(SMALL.stream_bytes)


async def test_a_stream_that_discards_its_input_holds_nothing_and_stops_nobody() -> None:
    async with conversation(SMALL) as talk:
        stream = await talk.opened()
        talk.send(data(1, b"x" * 120))
        await talk.settle()
        stream.discard_input()
        talk.send(*[data(1, b"x" * 120) for _ in range(5)])
        await talk.settle()
        assert (talk.wire.incoming.qsize(), talk.session.held_bytes) == (0, 0)


async def test_a_writer_waits_while_the_peer_does_not_read_and_others_take_their_turn() -> None:
    async with conversation() as talk:
        first, second = await talk.opened(), await talk.opened()
        talk.wire.is_blocked = True
        writing = [asyncio.create_task(stream.write(b"x")) for stream in (first, second)]
        await talk.settle()
        assert len(talk.peer.of("data")) == 1
        talk.wire.is_blocked = False
        talk.wire.unblocked.set()
        await asyncio.gather(*writing)
        await talk.settle()
        assert talk.peer.of("data") == [(1, b"x"), (3, b"x")]


async def test_a_peer_that_asks_and_does_not_read_the_answers_is_sent_away() -> None:
    async with conversation(SMALL) as talk:
        talk.wire.is_blocked = True
        talk.send(*[ping(1) * 10 for _ in range(100)])
        await asyncio.wait_for(talk.session.ended.wait(), 60)
        assert len(talk.wire.sent) < 2 * SMALL.backlog_bytes


async def test_a_peer_without_windows_gets_more_than_one_window() -> None:
    async with conversation() as talk:
        stream = await talk.opened()
        async with asyncio.timeout(60):
            await stream.write(b"x" * (3 * DEFAULT_WINDOW))
        talk.send(data(1, b"x" * GRANT_FROM))
        await stream.read()
        await talk.settle()
        assert not talk.peer.of("window")


async def test_a_peer_with_windows_is_kept_to_and_given_room() -> None:
    async with conversation() as talk:
        talk.send(settings(INITIAL_WINDOW, 10))
        stream = await talk.opened()
        writing = asyncio.create_task(stream.write(b"x" * 25))
        await talk.settle()
        assert talk.peer.data_of(1) == b"x" * 10
        talk.send(pair(harness.WINDOW, 1, 12))
        await talk.settle()
        assert talk.peer.data_of(1) == b"x" * 22
        talk.send(pair(harness.WINDOW, 1, 100))
        await asyncio.wait_for(writing, 60)
        talk.send(data(1, b"x" * GRANT_FROM))
        await stream.read()
        reading = asyncio.create_task(stream.read())  # what came before is passed on
        await talk.settle()
        assert talk.peer.of("window") == [(1, GRANT_FROM), (0, GRANT_FROM)]
        reading.cancel()


async def test_a_window_that_grows_too_large_ends_its_stream_alone() -> None:
    async with conversation() as talk:
        await talk.opened()
        talk.send(pair(harness.WINDOW, 1, 2**31 - 1), pair(harness.WINDOW, 99, 5))
        await talk.settle()
        assert talk.peer.of("reset") == [(1, 7)]
        assert not talk.session.ended.is_set()


async def test_a_writer_that_waits_for_a_window_ends_with_its_connection() -> None:
    async with conversation() as talk:
        talk.send(settings(INITIAL_WINDOW, 0))
        stream = await talk.opened()
        writing = asyncio.create_task(stream.write(b"x"))
        await talk.settle()
        talk.send(b"")
        with pytest.raises(StreamEnded):
            await asyncio.wait_for(writing, 60)


async def test_a_connection_without_frames_ends() -> None:
    async with conversation(SpdyLimits(idle_s=0.0)) as talk:
        await asyncio.wait_for(talk.session.ended.wait(), 60)
        assert "no frame" in talk.session.problem


async def test_a_reader_of_input_that_is_no_longer_wanted_returns() -> None:
    """Else it would wait for ever: a stream that is over is not told of its connection's end."""
    async with conversation() as talk:
        talk.send(talk.peer.open({})[1])
        stream = await talk.session.accept()
        assert stream
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        stream.finish(b"end")
        stream.discard_input()
        assert await asyncio.wait_for(reading, 60) == b""
