"""The log of an array: each task as a whole once it has ended, so that no two tasks are mixed.

Each task has a heading on stderr, then its stdout, then its stderr (see `redbox_shared.own_lines`).
"""

from __future__ import annotations

import time
from functools import partial

from redbox_companion.log_relay import LogRelay, LogUnreadable
from redbox_shared.job_end import FINAL_PHASES, has_ended
from redbox_shared.own_lines import REREAD_AT_ONCE, late_heading, task_heading, tasks_not_listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    # Of a task, by the stream's name; each calls its argument before it writes a piece.
    RelaysOf = Callable[[int, Callable[[], None]], Mapping[str, LogRelay]]

POLL_S = 2.0


class ArrayTaskLog:
    """The output of a task that has ended, and how much was copied. There may be 50,000: each is small."""

    __slots__ = ("_heading", "_positions", "index", "is_shown")

    def __init__(self, task: Mapping[str, Any]) -> None:
        self.index: int = task["index"]
        self.is_shown = False
        state = task.get("state") or task["phase"]
        self._heading = task_heading(self.index, state, task.get("exitCode"), task.get("signal"))
        self._positions: tuple[tuple[str, str, int], ...] = ()  # stream, generation, offset

    def catch_up(self, relays_of: RelaysOf, say: Callable[[str], None]) -> None:
        """Copy what is there now."""
        relays = self._relays(relays_of, say)
        for relay in relays.values():
            _copy_unless_unreadable(relay.catch_up)
        self._positions = tuple(
            (stream, relay.generation, relay.offset) for stream, relay in relays.items() if relay.offset
        )

    def finish(self, relays_of: RelaysOf, say: Callable[[str], None]) -> list[tuple[str, str]]:
        """Copy the rest, the array being final; returns the streams that cannot be read, and why."""
        if self.is_shown:
            self._heading = late_heading(self.index)
        else:
            self._show_heading(say)
        unreadable = []
        for stream, relay in self._relays(relays_of, say).items():
            if why := _copy_unless_unreadable(relay.follow):
                unreadable.append((stream, f"task {self.index}: {why}"))
        return unreadable

    def _relays(self, relays_of: RelaysOf, say: Callable[[str], None]) -> Mapping[str, LogRelay]:
        relays = relays_of(self.index, partial(self._show_heading, say))
        for stream, generation, offset in self._positions:
            relays[stream].go_on(generation, offset)
        return relays

    def _show_heading(self, say: Callable[[str], None]) -> None:
        """The one that is due, if any."""
        if self._heading:
            say(self._heading)
            self._heading, self.is_shown = "", True


def follow_tasks(
    get_job: Callable[[], dict[str, Any]], relays_of: RelaysOf, say: Callable[[str], None]
) -> list[tuple[str, str]]:
    """Copy until the array is final and all is written; returns the streams that cannot be read, and why."""
    tasks: dict[int, ArrayTaskLog] = {}
    silent: list[ArrayTaskLog] = []
    while True:
        job = get_job()
        is_final = has_ended(job)
        not_listed = _why_not_listed(job)
        new = [ArrayTaskLog(task) for task in ended_tasks(job) if task["index"] not in tasks]
        del job  # 16 MiB of 40,000 tasks: not kept while the next one is read
        tasks |= {task.index: task for task in new}
        due = [*new, *silent[:REREAD_AT_ONCE]]
        for task in due:
            task.catch_up(relays_of, say)
        silent = silent[REREAD_AT_ONCE:] + [task for task in due if not task.is_shown]
        if is_final:
            break
        time.sleep(POLL_S)
    if not_listed:
        return [("stdout", not_listed)]
    return [stream for index in sorted(tasks) for stream in tasks[index].finish(relays_of, say)]


def _why_not_listed(job: dict[str, Any]) -> str:
    """Empty where red-box lists the tasks."""
    is_listed = not job.get("array") or job.get("tasks") is not None
    return "" if is_listed else tasks_not_listed(job.get("workingDirectory"))


def ended_tasks(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks whose output is complete, by index; of a final array, all."""
    is_final = has_ended(job)
    ended = (task for task in job.get("tasks") or () if is_final or task["phase"] in FINAL_PHASES)
    return sorted(ended, key=lambda task: int(task["index"]))


def _copy_unless_unreadable(copy: Callable[[], None]) -> str:
    try:
        copy()
    except LogUnreadable as error:
        return str(error)
    return ""
