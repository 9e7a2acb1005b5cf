"""The logs of an array: each task's as a whole, when the task has ended, so that no two are mixed.

What a file system shows late of a task comes behind all that is known, when the whole array is final.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redbox_companion.outcome import FINAL
from redbox_companion.relay import Relay, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_AGAIN_S = 2.0


def follow_tasks(look: Callable[[], dict[str, Any]], relay_of: Callable[[int], Relay]) -> None:
    """Copy until the array is final and the last byte of each task is out."""
    relays: dict[int, Relay] = {}
    while True:
        job = look()
        for task in sorted(ended_tasks(job) - relays.keys()):
            relays[task] = relay_of(task)
            _unless_unreadable(relays[task].catch_up)
        if job["phase"] in FINAL:
            break
        time.sleep(LOOK_AGAIN_S)
    troubles = [
        f"task {task}: {why}" for task in sorted(relays) if (why := _unless_unreadable(relays[task].follow))
    ]
    if troubles:
        raise Unreadable("; ".join(troubles))


def ended_tasks(job: dict[str, Any]) -> set[int]:
    """Indices of the tasks whose output is whole; of a final array, of all."""
    over = job["phase"] in FINAL
    return {task["index"] for task in job.get("tasks") or () if over or task["phase"] in FINAL}


def _unless_unreadable(copy: Callable[[], None]) -> str:
    try:
        copy()
    except Unreadable as error:
        return str(error)
    return ""
