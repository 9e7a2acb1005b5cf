"""Whatever a peer sends, and whatever is done with it, a session holds a bounded number of bytes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from redbox_resourced.kubelet.spdy.errors import StreamEnded
from redbox_resourced.kubelet.spdy.frames import MAX_CONTROL_FRAME
from redbox_resourced.kubelet.spdy.session import SpdySession, SpdyStream
from tests.resourced.kubelet.spdy import harness
from tests.resourced.kubelet.spdy.conversations import SMALL, Conversation
from tests.resourced.kubelet.spdy.harness import Peer, data, pair, ping, settings

LARGEST_CHUNK = 200
INITIAL_WINDOW = 7
ACTS = ("read", "write", "reset", "finish", "discard")
STREAM_IDS = st.integers(0, 9)
STEPS = st.one_of(
    st.tuples(st.just("open"), st.booleans()),
    st.tuples(st.just("data"), STREAM_IDS, st.binary(max_size=LARGEST_CHUNK - 8), st.booleans()),
    st.tuples(st.just("pair"), st.sampled_from([harness.RST, harness.WINDOW]), STREAM_IDS, STREAM_IDS),
    st.tuples(st.just("settings"), st.integers(0, 50)),
    st.tuples(st.just("ping"), STREAM_IDS),
    st.tuples(st.just("junk"), st.binary(max_size=30)),
    st.tuples(st.sampled_from(ACTS), st.integers(0, 3)),
)


@given(st.lists(STEPS, max_size=40))
def test_whatever_a_peer_and_its_reader_do_a_session_stays_within_its_bounds(
    steps: list[tuple[object, ...]],
) -> None:
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[object, ...]]) -> None:
    talk = Conversation(SMALL)
    running = asyncio.create_task(talk.session.run())
    accepted: list[SpdyStream] = []
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(_accept(talk.session, accepted))]
    most = SMALL.session_bytes + LARGEST_CHUNK + MAX_CONTROL_FRAME
    for step in steps:
        frame = _frame(talk.peer, step)
        if frame:
            talk.send(frame)
        match step:
            case (str(act), int(index)) if act in ACTS and index < len(accepted):
                tasks += _act(accepted[index], act)
        await asyncio.sleep(0)
        assert talk.session.held_bytes <= most
        assert talk.session.open_streams <= SMALL.streams
    talk.send(b"")
    for stream in accepted:
        stream.discard_input()
    try:
        await asyncio.wait_for(running, 60)  # it ends, and raises nothing
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
    finally:
        for task in (running, *tasks):
            task.cancel()


def _frame(peer: Peer, step: tuple[object, ...]) -> bytes:  # noqa: PLR0911 (a table)
    match step:
        case ("open", bool(is_last)):
            return peer.open({"streamtype": "data"}, is_last=is_last)[1]
        case ("data", int(stream), bytes(content), bool(is_last)):
            return data(stream, content, is_last=is_last)
        case ("pair", int(kind), int(first), int(second)):
            return pair(kind, first, second)
        case ("settings", int(size)):
            return settings(INITIAL_WINDOW, size)
        case ("ping", int(count)):
            return ping(count)
        case ("junk", bytes(content)):
            return content
    return b""


def _act(stream: SpdyStream, act: str) -> list[asyncio.Task[object]]:
    match act:
        case "read":
            return [asyncio.create_task(stream.read())]
        case "write":
            return [asyncio.create_task(_write(stream))]
        case "reset":
            stream.reset()
        case "finish":
            stream.finish(b"end")
        case _:
            stream.discard_input()
    return []


async def _write(stream: SpdyStream) -> object:
    with suppress(StreamEnded):
        await stream.write(b"x" * 20)
    return None


async def _accept(session: SpdySession, accepted: list[SpdyStream]) -> object:
    while stream := await session.accept():
        accepted.append(stream)
    return None
