"""Bytes that wait for their reader."""

from __future__ import annotations

from redbox_resourced.kubelet.spdy.held_pieces import PIECE_COST, HeldPieces


def test_what_was_held_is_taken_in_order_and_once() -> None:
    held = HeldPieces()
    held.add(b"one")
    held.add(b" two")
    assert held.take() == b"one two"
    assert (held.take(), held.cost) == (b"", 0)


def test_one_piece_is_not_copied() -> None:
    piece = bytes(1000)
    held = HeldPieces()
    held.add(piece)
    assert held.take() is piece


def test_pieces_of_one_byte_cost_what_they_take_of_memory() -> None:
    held = HeldPieces()
    for _ in range(1000):
        held.add(b"x")
    assert held.cost == 1000 * (1 + PIECE_COST)
