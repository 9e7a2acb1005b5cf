"""What a relay may send, and what becomes of one that sends anything else, or takes nothing."""

from __future__ import annotations

import asyncio

import pytest

from redbox.agents.program.wire import CHUNK
from redbox.relay.program import frames
from redbox.relay.program.frames import RelayDecoder
from redbox.sessions.errors import SessionEnded
from redbox.sessions.relay_connection import FRAMES_A_TURN, LATE_FRAMES, MAX_PRINTED, StreamOutput
from tests.redbox.sessions.fakes import FakePipe, served, until

STDOUT_CLOSED = b"\1"


async def test_what_a_sites_task_prolog_prints_before_a_relay_is_skipped() -> None:
    pipe = FakePipe()
    hello = pipe.output.get_nowait()
    for part in (b"Welcome to n1\r\n", b"\r\n" + hello[:3], hello[3:]):
        pipe.output.put_nowait(part)
    async with served(pipe) as connection, connection.open({"kind": "command"}) as stream:
        pipe.emit(frames.DATA, 1, b"\1there")
        assert await stream.receive() == StreamOutput(1, b"there")


async def test_a_relay_that_prints_without_end_is_ended() -> None:
    pipe = FakePipe()
    pipe.output = asyncio.Queue()
    pipe.output.put_nowait(bytes(MAX_PRINTED + 1))
    async with served(pipe) as connection, connection.open({"kind": "command"}) as stream:
        with pytest.raises(SessionEnded, match="before its first frame"):
            await stream.receive()


async def test_a_session_is_opened_while_slurm_starts_the_relay() -> None:
    """It is the relay's first input: what the relay says first need not be waited for."""
    pipe = FakePipe()
    hello = pipe.output.get_nowait()
    async with served(pipe) as connection, connection.open({"kind": "command"}) as stream:
        assert pipe.count_of(frames.OPEN) == 1
        sending = asyncio.create_task(stream.send(b"nobody reads it yet"))
        await asyncio.sleep(0)
        assert pipe.count_of(frames.DATA) == 0
        pipe.output.put_nowait(hello)
        await sending
        assert pipe.count_of(frames.DATA) == 1
        pipe.emit(frames.DATA, 1, b"\1there")
        assert await stream.receive() == StreamOutput(1, b"there")


async def test_a_relay_that_slurm_does_not_start_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox.sessions.relay_connection.START_S", 0.01)
    pipe = FakePipe()
    pipe.output.get_nowait()
    async with served(pipe) as connection, connection.open({"kind": "command"}) as stream:
        with pytest.raises(SessionEnded, match="on node n1 could not begin: Slurm did not start its step"):
            await stream.receive()


async def test_a_stream_is_closed_once() -> None:
    async with served(pipe := FakePipe()) as connection, connection.open({"kind": "port"}) as stream:
        pipe.emit(frames.CLOSE, 1, STDOUT_CLOSED)
        assert await stream.receive() == StreamOutput(1, b"")
        pipe.emit(frames.CLOSE, 1, STDOUT_CLOSED, count=100_000)
        with pytest.raises(SessionEnded, match="closed twice"):
            await stream.receive()


async def test_a_pong_that_was_not_asked_for_breaks_the_protocol() -> None:
    async with served(pipe := FakePipe()) as connection, connection.open({"kind": "command"}) as stream:
        pipe.emit(frames.PONG, 0)
        with pytest.raises(SessionEnded, match="broke the protocol"):
            await stream.receive()


async def test_each_ping_may_be_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox.sessions.relay_connection.PING_S", 0.01)
    async with served(pipe := FakePipe()) as connection, connection.open({"kind": "command"}) as stream:
        await until(lambda: pipe.count_of(frames.PING) > 0)
        pipe.emit(frames.PONG, 0)
        pipe.emit(frames.DATA, 1, b"\1still there")
        assert await stream.receive() == StreamOutput(1, b"still there")


async def test_a_relay_is_silent_as_long_as_its_job_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox.sessions.relay_connection.SILENT_S", 0.01)
    suspended = iter([True, True, True, False])
    async with served(FakePipe(), lambda: next(suspended)) as connection:
        await until(lambda: connection.failure is not None)
    assert "its relay was silent" in str(connection.failure)
    assert not list(suspended)


async def test_a_killed_stream_may_send_what_was_under_way_and_no_more() -> None:
    async with served(pipe := FakePipe()) as connection:
        async with connection.open({"kind": "command"}):
            pass
        pipe.emit(frames.DATA, 1, b"\1x", count=frames.OUTPUT_WINDOW // frames.data_cost(1))
        async with connection.open({"kind": "command"}) as stream:
            pipe.emit(frames.DATA, 2, b"\1there")
            assert await stream.receive() == StreamOutput(1, b"there")
            pipe.emit(frames.DATA, 1, b"\1x", count=LATE_FRAMES)
            with pytest.raises(SessionEnded, match="for no stream"):
                await stream.receive()


async def test_many_frames_at_once_leave_turns_to_others() -> None:
    async with served(pipe := FakePipe()) as connection, connection.open({"kind": "command"}) as stream:
        credit = frames.CREDIT_BYTES.pack(1)
        count = 20 * FRAMES_A_TURN
        last = frames.frame_bytes(frames.DATA, 1, b"\1last")
        pipe.output.put_nowait(frames.frame_bytes(frames.CREDIT, 1, credit) * count + last)
        receiving = asyncio.create_task(stream.receive())
        turns = 0
        while not receiving.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 20


async def test_a_silent_relay_is_noticed_while_a_write_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox.sessions.relay_connection.PING_S", 0.01)
    monkeypatch.setattr("redbox.sessions.relay_connection.SILENT_S", 1.0)
    async with served(pipe := FakePipe()) as connection, connection.open({"kind": "command"}) as stream:
        pipe.takes_input.clear()
        sending = asyncio.create_task(stream.send(b"x"))
        with pytest.raises(SessionEnded, match="silent"):
            await stream.receive()
        sending.cancel()


async def test_a_session_ends_although_its_relay_takes_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox.sessions.relay_connection.KILL_S", 0.01)
    async with served(pipe := FakePipe()) as connection, connection.open({"kind": "command"}) as other:
        async with connection.open({"kind": "command"}):
            pipe.takes_input.clear()
        with pytest.raises(SessionEnded, match="did not end a session"):
            await other.receive()


async def test_a_client_that_leaves_a_suspended_job_ends_no_other_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it had sent fills the way to a relay that Slurm has stopped."""
    monkeypatch.setattr("redbox.sessions.relay_connection.KILL_S", 0.01)
    monkeypatch.setattr("redbox.sessions.relay_connection.PING_S", 0.01)
    pipe = FakePipe()
    async with served(pipe, lambda: True) as connection, connection.open({"kind": "command"}) as other:
        async with connection.open({"kind": "command"}):
            pipe.takes_input.clear()
        pipe.takes_input.set()
        await until(lambda: pipe.count_of(frames.KILL) == 1)
        pipe.emit(frames.DATA, other.number, b"\1resumed")
        assert await other.receive() == StreamOutput(1, b"resumed")


async def test_of_clients_that_leave_a_suspended_job_each_has_its_session_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one leaves while the end of the first one's session is being written."""
    monkeypatch.setattr("redbox.sessions.relay_connection.KILL_S", 0.05)
    monkeypatch.setattr("redbox.sessions.relay_connection.PING_S", 0.01)

    class SuspendedOften(FakePipe):
        async def send(self, data: bytes) -> None:
            await super().send(data)
            if self.sent[-1].kind == frames.PING:
                self.takes_input.clear()

    pipe = SuspendedOften()
    async with served(pipe, lambda: True) as connection:
        async with connection.open({"kind": "command"}) as second:
            async with connection.open({"kind": "command"}) as first:
                await until(lambda: not pipe.takes_input.is_set())
            pipe.takes_input.set()
            await until(lambda: not pipe.takes_input.is_set())
        pipe.takes_input.set()
        await until(lambda: pipe.count_of(frames.KILL) == 2)
    assert {frame.stream for frame in pipe.sent if frame.kind == frames.KILL} == {first.number, second.number}


async def test_a_session_that_is_not_even_written_ends_with_its_relay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redbox.sessions.relay_connection.START_S", 0.01)
    pipe = FakePipe()
    pipe.output.get_nowait()
    pipe.takes_input.clear()
    async with served(pipe) as connection, asyncio.timeout(60):
        with pytest.raises(SessionEnded, match="Slurm did not start its step"):
            async with connection.open({"kind": "command"}) as stream:
                await stream.receive()
    assert not pipe.sent


async def test_a_session_that_is_cancelled_twice_leaves_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a forwarded connection that its client gives up just before the forward ends."""
    monkeypatch.setattr("redbox.sessions.relay_connection.MOST_STREAMS", 1)
    async with served(pipe := FakePipe()) as connection:

        async def carry() -> None:
            async with connection.open({"kind": "port"}) as stream:
                await stream.receive()

        carrying = asyncio.create_task(carry())
        await until(lambda: pipe.count_of(frames.OPEN) == 1)
        pipe.takes_input.clear()
        for _ in range(2):
            carrying.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(carrying, return_exceptions=True)
        pipe.takes_input.set()
        await until(lambda: pipe.count_of(frames.KILL) == 1)
        async with connection.open({"kind": "port"}):
            pass


async def test_input_goes_on_as_far_as_its_credit_in_order_and_several_frames_at_once() -> None:
    class CountedPipe(FakePipe):
        writes = 0

        async def send(self, data: bytes) -> None:
            assert (
                len(data) <= CHUNK
            )  # else the agent takes it in two frames, which a cancelled write may part
            self.writes += frames.DATA in {frame.kind for frame in RelayDecoder().feed(data)}
            await super().send(data)

    pipe = CountedPipe()
    sent = bytes(range(256)) * (4 * frames.INPUT_WINDOW // 256 // 3)
    async with served(pipe) as connection, connection.open({"kind": "command"}) as stream:
        await until(lambda: connection.has_started)
        sending = asyncio.create_task(stream.send(sent))
        await until(lambda: received(pipe) > frames.INPUT_WINDOW * 0.9)
        assert not sending.done()
        assert received(pipe) <= frames.INPUT_WINDOW
        assert pipe.writes < pipe.count_of(frames.DATA) / 2
        pipe.emit(frames.CREDIT, stream.number, frames.CREDIT_BYTES.pack(frames.INPUT_WINDOW // 2))
        await sending
    assert b"".join(frame.payload[1:] for frame in pipe.sent if frame.kind == frames.DATA) == sent


def received(pipe: FakePipe) -> int:
    return sum(len(frame.payload) - 1 for frame in pipe.sent if frame.kind == frames.DATA)
