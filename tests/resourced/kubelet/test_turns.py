"""Whose output is copied, and how much of it in each round of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter

from redbox_resourced.kubelet.turns import BYTES_PER_S, TURN_S, NamespaceTurns

PIECE = 64 * 1024
READERS, ROUNDS = 100, 50


async def test_a_namespace_of_many_readers_copies_no_more_in_a_round_than_its_turn() -> None:
    turns, copied = NamespaceTurns(), Counter[str]()

    async def copy_for_ever(namespace: str) -> None:
        turn = turns.of(namespace)
        while True:
            await asyncio.sleep(0)
            copied[namespace] += PIECE
            await turn.copied(PIECE)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(copy_for_ever(namespace)) for namespace in ["alice"] * READERS + ["bob"]]
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
    in_turns = ROUNDS * TURN_S * BYTES_PER_S
    assert copied["alice"] <= READERS * PIECE + in_turns  # each has its first piece in hand
    assert copied["alice"] > in_turns / 2
    assert copied["bob"] > ROUNDS / 4 * PIECE
