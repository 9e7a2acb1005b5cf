"""Whatever a process that should be an agent sends: its own user's request fails, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redbox.agents.agent import MAX_STDERR, AgentClient
from redbox.agents.errors import AgentDied, AgentTimeout, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.program.wire import WINDOW
from redbox.agents.protocol.answers import MAX_FIELDS
from redbox.agents.protocol.connection import MAX_UNREAD
from redbox.agents.protocol.frames import SMALL_HEADER, FrameKind, encode_frame
from redbox.core.domain import UnixUser
from tests.redbox.agents.harness import LaunchedTransport, until
from tests.redbox.agents.protocol.harness import (
    FACTS,
    PIECE,
    ask_everything,
    conversation,
    only_agent_errors,
)


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage instead of a frame of any kind",
        encode_frame(FrameKind.DATA, 99, None, b"for no request"),
        encode_frame(FrameKind.REQUEST, 1, {"op": "run"}),
        encode_frame(FrameKind.PONG, 0),
        encode_frame(FrameKind.CREDIT, 1, {"bytes": 1}),
        encode_frame(FrameKind.CREDIT, 1, {"bytes": -5}),
        encode_frame(FrameKind.DONE, 1, {}),
        encode_frame(FrameKind.DONE, 1, {**PIECE, "size": "large"}),
        encode_frame(FrameKind.DONE, 1, {**PIECE, "offset": float("nan")}),
        encode_frame(FrameKind.DONE, 1, {**PIECE, "size": 10**30}),
        encode_frame(FrameKind.DONE, 1, {**PIECE, "kind": ["file"]}),
        encode_frame(FrameKind.FAILED, 1, {"kind": 5}),
        encode_frame(FrameKind.DATA, 1, None, b"x" * 101),
        encode_frame(FrameKind.EVENT, 1, FACTS),
        encode_frame(FrameKind.DATA, 1, None, b"x" * (WINDOW // 2)) * 3,
        encode_frame(FrameKind.DATA, 1) * (WINDOW // 13 + 1),
        encode_frame(FrameKind.DATA, 1, {"fd": 1, "more": 1}, b"x"),
        encode_frame(FrameKind.DATA, 1, {"fd": [1]}, b"x"),
        encode_frame(FrameKind.DATA, 1, {"fd": "x" * SMALL_HEADER}, b"x"),
        encode_frame(FrameKind.DONE, 1, {**PIECE, "more": [[]] * 1000}),
        encode_frame(FrameKind.DONE, 1, {**PIECE, **dict.fromkeys(map(str, range(MAX_FIELDS)), 1)}),
        b"\x02\0\0\0\1\xff\xff\xff\xff\0\0\0\0",
    ],
)
async def test_an_answer_that_no_agent_gives_is_the_end_of_that_agent(answer: bytes) -> None:
    async with conversation() as (agent, peer):
        read = asyncio.create_task(agent.read("/f", limit=100))
        await asyncio.sleep(0)
        peer.answer(answer)
        with pytest.raises(AgentDied, match="broke the protocol") as died:
            await read
        assert died.value.retry
        assert peer.abandoned
        with pytest.raises(AgentUnavailable):
            await agent.stat("/f")


async def test_a_real_path_that_is_not_absolute_is_the_end_of_that_agent() -> None:
    """Compared with another path it would raise what nobody expects of an agent."""
    async with conversation() as (agent, peer):
        status = asyncio.create_task(agent.stat("/f"))
        await asyncio.sleep(0)
        peer.answer(encode_frame(FrameKind.DONE, 1, {**FACTS, "file_system": "ext4", "real_path": "f"}))
        with pytest.raises(AgentDied, match="broke the protocol: real_path"):
            await status


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.builds(
                encode_frame,
                st.sampled_from(FrameKind),
                st.integers(0, 9),
                st.dictionaries(
                    st.sampled_from(
                        sorted({*PIECE, "code", "state", "fd", "bytes", "message", "path", "truncated"})
                    ),
                    st.one_of(
                        st.integers(-5, 10**20), st.text(max_size=9), st.booleans(), st.floats(), st.none()
                    ),
                    max_size=12,
                ),
                st.binary(max_size=200),
            ),
        ),
        max_size=12,
    )
)
async def test_a_peer_that_sends_anything_can_neither_hang_nor_crash_the_server(answers: list[bytes]) -> None:
    async with conversation() as (agent, peer):
        everything = asyncio.create_task(ask_everything(agent))
        await asyncio.sleep(0)
        peer.answer(*[answer for answer in answers if answer], b"")
        assert only_agent_errors(await everything)


async def begin_step(agent: AgentClient) -> None:
    async with agent.open_step(["srun"], b"pass", job="7", name="rbx-0123456789abcdef", env={}):
        pass


async def begin_download(agent: AgentClient) -> None:
    async for _ in agent.download("/f"):
        pass


@pytest.mark.parametrize("begin", [begin_step, begin_download])
async def test_a_peer_that_reads_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[AgentClient], Awaitable[None]]
) -> None:
    """As an agent that its user has stopped, once the pipe to it is full."""
    monkeypatch.setattr("redbox.agents.agent.FILE_S", 0.01)
    monkeypatch.setattr("redbox.agents.protocol.connection.PONG_S", 0.01)
    async with conversation() as (agent, peer):
        peer.reads.clear()
        with pytest.raises(AgentTimeout, match="was not read within"):
            await begin(agent)
        await until(lambda: peer.abandoned)
        assert not agent.is_alive


async def test_an_abandoned_answer_is_thrown_away_until_it_ends() -> None:
    async with conversation() as (agent, peer):
        read = asyncio.create_task(agent.read("/f"))
        await asyncio.sleep(0)
        read.cancel()
        await asyncio.gather(read, return_exceptions=True)
        assert peer.received[-1].kind is FrameKind.CANCEL
        peer.answer(
            encode_frame(FrameKind.DATA, 1, None, b"late"),
            encode_frame(FrameKind.FAILED, 1, {"kind": "cancelled", "message": ""}),
        )
        stat = asyncio.create_task(agent.stat("/f"))
        await asyncio.sleep(0)
        peer.answer(encode_frame(FrameKind.DONE, 2, {**FACTS, "file_system": "ext4", "real_path": ""}))
        assert (await stat).file_system == "ext4"


async def test_requests_that_are_never_answered_do_not_pile_up() -> None:
    async with conversation() as (agent, peer):
        outcomes = await asyncio.gather(
            *(agent.stat("/f", deadline=0.05) for _ in range(100)), return_exceptions=True
        )
        assert sum(isinstance(outcome, AgentUnavailable) for outcome in outcomes) == 36
        assert sum(frame.kind is FrameKind.REQUEST for frame in peer.received) == 64


async def test_frames_that_nobody_reads_are_bounded_in_number() -> None:
    async with conversation() as (agent, peer):
        slow = [agent.download("/f") for _ in range(2)]
        first = [asyncio.ensure_future(anext(stream)) for stream in slow]
        await asyncio.sleep(0)
        peer.answer(b"".join(encode_frame(FrameKind.DATA, number, None, b"x") for number in (1, 2)))
        assert await asyncio.gather(*first) == [b"x", b"x"]
        empty = MAX_UNREAD // 2
        peer.answer(*[encode_frame(FrameKind.DATA, number) * empty for number in (1, 2)])
        await until(lambda: peer.is_read)
        assert agent.is_alive
        peer.answer(encode_frame(FrameKind.DATA, 2))
        await until(lambda: not agent.is_alive)
        for stream in slow:
            await stream.aclose()


async def test_frames_whose_reader_has_left_do_not_count() -> None:
    async with conversation() as (agent, peer):
        for number in range(1, 4):
            reader = agent.download("/f")
            first = asyncio.ensure_future(anext(reader))
            await asyncio.sleep(0)
            peer.answer(
                encode_frame(FrameKind.DATA, number, None, b"x")
                + encode_frame(FrameKind.DATA, number) * 30_000
            )
            assert await first == b"x"
            await until(lambda: peer.is_read)
            await reader.aclose()
        assert agent.is_alive


async def test_of_stderr_a_part_is_kept() -> None:
    async with conversation() as (agent, peer):
        run = asyncio.create_task(agent.run(["x"], deadline=10, output_limit=4 * MAX_STDERR))
        await asyncio.sleep(0)
        part = WINDOW // 2
        for _ in range(6):
            peer.answer(encode_frame(FrameKind.DATA, 1, {"fd": 2}, bytes(part)))
            await until(lambda: peer.is_read)
            await asyncio.sleep(0)
        done = {"code": 0, "took_s": 1.0, "timed_out": False, "truncated": False}
        peer.answer(
            encode_frame(FrameKind.DATA, 1, {"fd": 1}, b"said"), encode_frame(FrameKind.DONE, 1, done)
        )
        completed = await run
    assert completed.stdout == b"said"
    assert len(completed.stderr) == MAX_STDERR


async def test_a_process_that_floods_its_output_is_given_up(user: UnixUser) -> None:
    source = b"import os\nwhile True: os.write(1, b'x' * 65536)\n"
    transport = LaunchedTransport(preamble=b"%d\n%b" % (len(source), source))
    async with AgentPool(transport) as pool:
        with pytest.raises(AgentUnavailable, match="no hello"):
            await pool.agent(user)
        assert await transport.started[0].wait() != 0


async def test_a_process_that_floods_its_stderr_waits_for_itself(user: UnixUser) -> None:
    genuine = LaunchedTransport().preamble.split(b"\n", 1)[1]
    flood = b"""
import os, threading
threading.Thread(target=lambda: [os.write(2, b"x" * 65536) for _ in range(10**6)], daemon=True).start()
"""
    source = flood + genuine
    async with AgentPool(LaunchedTransport(preamble=b"%d\n%b" % (len(source), source))) as pool:
        agent = await pool.agent(user)
        assert (await agent.run(["/bin/echo", "fine"], deadline=10)).stdout == b"fine\n"
