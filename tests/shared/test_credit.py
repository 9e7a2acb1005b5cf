"""Credit is granted again in parts, and no sender of ours waits for more than it can get."""

from __future__ import annotations

import pytest

from redbox.agents.program import wire
from redbox.node.program.attachments import ATTACH_BYTES
from redbox.relay.program import frames
from redbox_api.sessions.forward import PORT_PIECE
from redbox_shared.credit import ReceiveCredit
from redbox_shared.wire import MESSAGE_COST, PORTS_WINDOW


def test_what_was_consumed_is_granted_for_half_of_the_window_at_once() -> None:
    credit = ReceiveCredit(100)
    assert [credit.consume(cost) for cost in (20, 29, 1, 1)] == [0, 0, 50, 0]
    assert (credit.take(), credit.take()) == (1, 0)


def test_a_sender_has_its_window_and_what_is_granted() -> None:
    credit = ReceiveCredit(100)
    assert credit.receive(100)
    assert credit.consume(49) == 0
    assert not credit.receive(1)
    credit = ReceiveCredit(100)
    assert credit.receive(100)
    assert credit.consume(60) == 60
    assert credit.receive(60)
    assert not credit.receive(1)


def test_a_part_of_the_window_can_be_granted_later() -> None:
    credit = ReceiveCredit(100, 60)
    assert not credit.receive(101)
    credit = ReceiveCredit(100, 60)
    assert (credit.take(), credit.take()) == (60, 0)
    assert credit.receive(160)
    assert [credit.consume(cost) for cost in (49, 1)] == [0, 50]


@pytest.mark.parametrize(
    ("window", "largest"),
    [
        (wire.WINDOW, wire.frame_cost(b"", b"") + wire.CHUNK),
        (frames.OUTPUT_WINDOW, frames.data_cost(frames.MAX_DATA)),
        (frames.INPUT_WINDOW, frames.data_cost(frames.MAX_DATA)),
        (frames.OUTPUT_WINDOW, frames.data_cost(ATTACH_BYTES)),
        (PORTS_WINDOW, MESSAGE_COST + frames.MAX_DATA),
        (PORTS_WINDOW, MESSAGE_COST + PORT_PIECE),
    ],
)
def test_the_largest_message_costs_no_more_than_what_is_always_granted(window: int, largest: int) -> None:
    credit = ReceiveCredit(window)
    left = window
    for _ in range(10):
        assert left >= largest
        assert credit.receive(largest)
        left += credit.consume(largest) - largest
        held_back = window - left
        assert held_back < credit.part
