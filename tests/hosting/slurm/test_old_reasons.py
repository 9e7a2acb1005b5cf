"""Which reason of a node holds."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.old_reasons import OldReasons

REBOOTED, SILENT = "Node unexpectedly rebooted", "Not responding"


def node(state: str, reason: str = "", at: int | None = 1_000) -> RestNode:
    given: dict[str, Any] = {"name": "w-0", "state": state.split("+"), "reason": reason}
    return RestNode.model_validate({**given, "reason_changed_at": at})


def reason_after(*seen: RestNode) -> str:
    """Of the last one of these answers."""
    reasons = OldReasons()
    return [each.reason for one in seen for each in reasons.corrected([one])][-1]


OLD = node("IDLE", "disk")


@pytest.mark.parametrize(
    ("what", "seen", "reason"),
    [
        ("resumed, then rebooted", [OLD, node("DOWN", "disk")], REBOOTED),
        ("busy as it was resumed", [node("ALLOCATED", "disk"), node("DOWN", "disk")], REBOOTED),
        ("set DOWN again", [OLD, node("DOWN", "disk", 1_060)], "disk"),
        ("set DOWN for another reason", [OLD, node("DOWN", "fan", 1_060)], "fan"),
        ("never seen in service", [node("DOWN", "disk")], "disk"),
        ("drained again", [OLD, node("IDLE+DRAIN", "disk")], "disk"),
        ("drained, then DOWN", [OLD, node("DOWN+DRAIN", "disk")], "disk"),
        ("DOWN all the time", [node("DOWN", "disk"), node("DOWN", "disk")], "disk"),
        ("a job took the reason away", [OLD, node("ALLOCATED"), node("DOWN", "disk")], "disk"),
        ("silent", [node("DOWN+NOT_RESPONDING", f"disk : {SILENT}")], SILENT),
        ("back from a silence", [node("DOWN", f"disk : {SILENT}")], REBOOTED),
        ("drained, and silent", [node("DOWN+DRAIN", f"disk : {SILENT}")], f"disk : {SILENT}"),
        ("silent without an old reason", [node("DOWN", SILENT)], SILENT),
    ],
)
def test_an_old_reason_is_not_taken_for_the_one_that_holds(
    what: str, seen: list[RestNode], reason: str
) -> None:
    assert reason_after(*seen) == reason, what


def test_each_node_has_its_own() -> None:
    reasons = OldReasons()
    list(reasons.corrected([OLD]))
    other = node("DOWN", "disk").model_copy(update={"name": "w-1"})
    assert [each.reason for each in reasons.corrected([other])] == ["disk"]
