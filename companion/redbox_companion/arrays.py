"""The log of an array: task by task, each as a whole when it has ended, so that no two are mixed.

Before each goes a line of our own on stderr: which task it is, and how it ended. Then comes its stdout, then
its stderr. What a file system shows late comes behind all that is known, when the whole array is final.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redbox_companion.outcome import FINAL
from redbox_companion.relay import Relay, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Relays = Mapping[str, Relay]  # by the stream's name

LOOK_AGAIN_S = 2.0


def follow_tasks(
    look: Callable[[], dict[str, Any]], relays_of: Callable[[int], Relays], say: Callable[[str], None]
) -> list[tuple[str, str]]:
    """Copy until the array is final and all is out; the streams that are not whole, and why."""
    relays: dict[int, Relays] = {}
    while True:
        job = look()
        for task in ended_tasks(job):
            index = task["index"]
            if index not in relays:
                say(heading(task))
                relays[index] = relays_of(index)
                for relay in relays[index].values():
                    _unless_unreadable(relay.catch_up)
        if job["phase"] in FINAL:
            break
        time.sleep(LOOK_AGAIN_S)
    return [
        (name, f"task {index}: {why}")
        for index in sorted(relays)
        for name, relay in relays[index].items()
        if (why := _finish(index, name, relay, say))
    ]


def ended_tasks(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Those whose output is whole, in their order; of a final array, all."""
    over = job["phase"] in FINAL
    ended = (task for task in job.get("tasks") or () if over or task["phase"] in FINAL)
    return sorted(ended, key=lambda task: int(task["index"]))


def heading(task: Mapping[str, Any]) -> str:
    """Which task it is, and how it ended."""
    code, signal = task.get("exitCode"), task.get("signal")
    how = f", signal {signal}" if signal else f", exit code {code}" if code else ""
    return f"task {task['index']}: {task.get('state') or task['phase']}{how}"


def _finish(index: int, name: str, relay: Relay, say: Callable[[str], None]) -> str:
    before = relay.copied
    why = _unless_unreadable(relay.follow)
    if late := relay.copied - before:
        say(f"task {index}: {late} bytes of {name} came late, and stand above this line")
    return why


def _unless_unreadable(copy: Callable[[], None]) -> str:
    try:
        copy()
    except Unreadable as error:
        return str(error)
    return ""
