"""What becomes of valid frames on the way: strategies over the pieces that are sent, in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

Pieces = list[bytes]
Draw = Callable[[st.SearchStrategy[Any]], Any]
MOST_MUTATIONS = 3
HUGE = (b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"9" * 5000, b"\0")


@st.composite
def mutated(draw: Draw, valid: st.SearchStrategy[Pieces]) -> Pieces:
    """Valid pieces, of which up to three were cut, repeated, moved, overwritten or replaced."""
    pieces: Pieces = draw(valid)
    for _ in range(draw(st.integers(0, MOST_MUTATIONS))):
        mutate = draw(st.sampled_from(MUTATIONS))
        at = draw(st.integers(0, max(0, len(pieces) - 1)))
        pieces = mutate(draw, pieces, at) if pieces else [draw(st.binary(max_size=40))]
    return pieces


def sequences(*kinds: st.SearchStrategy[bytes], most: int = 12) -> st.SearchStrategy[Pieces]:
    """Frames of these kinds in any order, mutated."""
    return mutated(st.lists(st.one_of(*kinds), max_size=most))


def _truncated(draw: Draw, pieces: Pieces, at: int) -> Pieces:
    return _with(pieces, at, [pieces[at][: draw(st.integers(0, len(pieces[at])))]])


def _repeated(draw: Draw, pieces: Pieces, at: int) -> Pieces:
    return _with(pieces, at, [pieces[at]] * draw(st.sampled_from([2, 3, 50])))


def _dropped(_: Draw, pieces: Pieces, at: int) -> Pieces:
    return _with(pieces, at, [])


def _moved(draw: Draw, pieces: Pieces, at: int) -> Pieces:
    rest = _with(pieces, at, [])
    to = draw(st.integers(0, len(rest)))
    return [*rest[:to], pieces[at], *rest[to:]]


def _overwritten(draw: Draw, pieces: Pieces, at: int) -> Pieces:
    """As with a length that is huge, or none."""
    place, huge = draw(st.integers(0, len(pieces[at]))), draw(st.sampled_from(HUGE))
    return _with(pieces, at, [pieces[at][:place] + huge + pieces[at][place + len(huge) :]])


def _inserted(draw: Draw, pieces: Pieces, at: int) -> Pieces:
    place, more = draw(st.integers(0, len(pieces[at]))), draw(st.binary(min_size=1, max_size=20))
    return _with(pieces, at, [pieces[at][:place] + more + pieces[at][place:]])


def _bit_flipped(draw: Draw, pieces: Pieces, at: int) -> Pieces:
    flipped = bytearray(pieces[at])
    if flipped:
        flipped[draw(st.integers(0, len(flipped) - 1))] ^= 1 << draw(st.integers(0, 7))
    return _with(pieces, at, [bytes(flipped)])


def _cut_in_two(draw: Draw, pieces: Pieces, at: int) -> Pieces:
    place = draw(st.integers(0, len(pieces[at])))
    return _with(pieces, at, [pieces[at][:place], pieces[at][place:]])


def _joined(_: Draw, pieces: Pieces, at: int) -> Pieces:
    return [*pieces[:at], b"".join(pieces[at:])]


def _with(pieces: Pieces, at: int, instead: Sequence[bytes]) -> Pieces:
    return [*pieces[:at], *instead, *pieces[at + 1 :]]


MUTATIONS = (
    _truncated,
    _repeated,
    _dropped,
    _moved,
    _overwritten,
    _inserted,
    _bit_flipped,
    _cut_in_two,
    _joined,
)
