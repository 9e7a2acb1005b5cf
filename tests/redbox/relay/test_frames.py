"""Frames of a relay, whatever they contain. Orders are its server's, who has sent the relay itself."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from redbox.relay.program import frames
from redbox.relay.program.frames import BadFrame, RelayDecoder
from tests.redbox.relay.harness import started

ODD_OPEN = frames.order_bytes({"kind": "command", "job": 7, "command": [1], "tty": 1, "stdin": 0})
TERMINAL = {"kind": "command", "job": "7", "command": ["true"], "tty": True, "stdin": False}
FRAMES = st.lists(
    st.one_of(
        st.binary(max_size=200),
        st.builds(
            frames.frame_bytes,
            st.sampled_from(sorted({0, 11, 12, *frames.KINDS} - {frames.OPEN, frames.RESIZE})),
            st.integers(0, 3),
            st.one_of(st.binary(max_size=100), st.sampled_from([b"\0\0\0\1", b"\0x"])),
        ),
        st.builds(
            frames.frame_bytes,
            st.sampled_from([frames.OPEN, frames.RESIZE]),
            st.integers(0, 3),
            st.sampled_from(
                [
                    frames.order_bytes(TERMINAL),
                    frames.order_bytes(TERMINAL)[:-9],
                    ODD_OPEN,
                    frames.order_bytes({"kind": "port", "port": -1}),
                    frames.order_bytes({"kind": "port", "port": 1}),
                    frames.order_bytes({"columns": float("inf"), "rows": "x"}),
                    b"i\0\0\0\0",
                ]
            ),
        ),
    ),
    max_size=8,
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(FRAMES)
@example([frames.frame_bytes(frames.OPEN, 1, ODD_OPEN)])
def test_a_relay_ends_cleanly_whatever_it_receives(parts: list[bytes]) -> None:
    with started(idle_s=1) as relay:
        with suppress(BrokenPipeError):
            for part in parts:
                relay.write(part)
            relay.process.stdin.close()  # type: ignore[union-attr]
        relay.process.stdin = None
        assert relay.process.wait(60) == 0


@given(st.lists(st.binary(max_size=64), max_size=40), st.lists(st.integers(1, 30), max_size=50))
def test_a_decoder_holds_no_more_than_one_frame(parts: list[bytes], sizes: list[int]) -> None:
    decoder = RelayDecoder()
    with suppress(BadFrame):
        for part in parts:
            for frame in decoder.feed(part):
                assert frame.kind in frames.KINDS
                assert len(frame.payload) <= frames.MAX_FRAME
    whole = b"".join(frames.frame_bytes(frames.DATA, 1, bytes(size)) for size in sizes)
    fresh, seen = RelayDecoder(), []
    for position in range(0, len(whole), 7):
        seen += [len(frame.payload) for frame in fresh.feed(whole[position : position + 7])]
    assert seen == sizes
