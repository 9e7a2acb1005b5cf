"""The log of an array: task by task, each as a whole when it has ended, so that no two are mixed.

Before each goes a line of our own on stderr: which task it is, and how it ended. Then comes its stdout, then
its stderr. A task of which nothing is shown yet is asked for again, a few at a time, and at the latest when
the whole array is final; what comes of a task after others is said to be its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redbox_companion.outcome import FINAL
from redbox_companion.relay import Relay, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # Of a task, by the stream's name; each calls what it is given before its first byte.
    RelaysOf = Callable[[int, Callable[[], None]], Mapping[str, Relay]]

LOOK_AGAIN_S = 2.0
ASKED_AGAIN_AT_ONCE = 3
HEADING_FIRST_S = 0.02  # stdout and stderr are two pipes: what reads them has to see the heading first


class Task:
    """One that has ended, and what was copied of it."""

    def __init__(self, told: Mapping[str, Any], relays_of: RelaysOf, say: Callable[[str], None]) -> None:
        self.index: int = told["index"]
        self.announced = False
        self._told = told
        self._say = say
        self._relays = relays_of(self.index, self._announce)

    def catch_up(self) -> None:
        """Copy what is there now."""
        for relay in self._relays.values():
            _unless_unreadable(relay.catch_up)

    def finish(self) -> list[tuple[str, str]]:
        """Copy what is left, the array being final; the streams that cannot be read, and why."""
        was_shown, troubles = self.announced, []
        self._announce()
        for name, relay in self._relays.items():
            before = relay.copied
            if why := _unless_unreadable(relay.follow):
                troubles.append((name, f"task {self.index}: {why}"))
            if was_shown and (late := relay.copied - before):
                self._say(f"task {self.index}: {late} bytes of {name} came late, and stand above this line")
        return troubles

    def _announce(self) -> None:
        if not self.announced:
            self.announced = True
            self._say(heading(self._told))
            time.sleep(HEADING_FIRST_S)


def follow_tasks(
    look: Callable[[], dict[str, Any]], relays_of: RelaysOf, say: Callable[[str], None]
) -> list[tuple[str, str]]:
    """Copy until the array is final and all is out; the streams that are not whole, and why."""
    tasks: dict[int, Task] = {}
    silent: list[Task] = []
    while True:
        job = look()
        new = [Task(told, relays_of, say) for told in ended_tasks(job) if told["index"] not in tasks]
        tasks |= {task.index: task for task in new}
        again, rest = silent[:ASKED_AGAIN_AT_ONCE], silent[ASKED_AGAIN_AT_ONCE:]
        for task in (*new, *again):
            task.catch_up()
        silent = rest + [task for task in (*new, *again) if not task.announced]
        if job["phase"] in FINAL:
            break
        time.sleep(LOOK_AGAIN_S)
    return [trouble for index in sorted(tasks) for trouble in tasks[index].finish()]


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


def _unless_unreadable(copy: Callable[[], None]) -> str:
    try:
        copy()
    except Unreadable as error:
        return str(error)
    return ""
