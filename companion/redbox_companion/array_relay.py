"""The log of an array: each task as a whole once it has ended, so that no two tasks are mixed.

Each task has a heading on stderr, then its stdout, then its stderr (see `redbox_shared.own_lines`).
"""

from __future__ import annotations

import time

from redbox_companion.log_relay import LogRelay, LogUnreadable
from redbox_shared.job_end import FINAL_PHASES
from redbox_shared.own_lines import REREAD_AT_ONCE, late_heading, task_heading, tasks_not_listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    # Of a task, by the stream's name; each calls its argument before it writes a piece.
    RelaysOf = Callable[[int, Callable[[], None]], Mapping[str, LogRelay]]

POLL_S = 2.0


class ArrayTaskLog:
    """The output of a task that has ended, and how much of it was copied."""

    def __init__(self, task: Mapping[str, Any], relays_of: RelaysOf, say: Callable[[str], None]) -> None:
        self.index: int = task["index"]
        self.is_shown = False
        state = task.get("state") or task["phase"]
        self._heading = task_heading(self.index, state, task.get("exitCode"), task.get("signal"))
        self._say = say
        self._relays = relays_of(self.index, self._show_heading)

    def catch_up(self) -> None:
        """Copy what is there now."""
        for relay in self._relays.values():
            _copy_unless_unreadable(relay.catch_up)

    def finish(self) -> list[tuple[str, str]]:
        """Copy the rest, the array being final; returns the streams that cannot be read, and why."""
        if self.is_shown:
            self._heading = late_heading(self.index)
        else:
            self._show_heading()
        unreadable = []
        for stream, relay in self._relays.items():
            if why := _copy_unless_unreadable(relay.follow):
                unreadable.append((stream, f"task {self.index}: {why}"))
        return unreadable

    def _show_heading(self) -> None:
        """The one that is due, if any."""
        if self._heading:
            self._say(self._heading)
            self._heading, self.is_shown = "", True


def follow_tasks(
    get_job: Callable[[], dict[str, Any]], relays_of: RelaysOf, say: Callable[[str], None]
) -> list[tuple[str, str]]:
    """Copy until the array is final and all is written; returns the streams that cannot be read, and why."""
    tasks: dict[int, ArrayTaskLog] = {}
    silent: list[ArrayTaskLog] = []
    while True:
        job = get_job()
        new = [ArrayTaskLog(task, relays_of, say) for task in ended_tasks(job) if task["index"] not in tasks]
        tasks |= {task.index: task for task in new}
        due = [*new, *silent[:REREAD_AT_ONCE]]
        for task in due:
            task.catch_up()
        silent = silent[REREAD_AT_ONCE:] + [task for task in due if not task.is_shown]
        if job["phase"] in FINAL_PHASES:
            break
        time.sleep(POLL_S)
    if job.get("array") and job.get("tasks") is None:
        return [("stdout", tasks_not_listed(job.get("workingDirectory")))]
    return [stream for index in sorted(tasks) for stream in tasks[index].finish()]


def ended_tasks(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The tasks whose output is complete, by index; of a final array, all."""
    is_final = job["phase"] in FINAL_PHASES
    ended = (task for task in job.get("tasks") or () if is_final or task["phase"] in FINAL_PHASES)
    return sorted(ended, key=lambda task: int(task["index"]))


def _copy_unless_unreadable(copy: Callable[[], None]) -> str:
    try:
        copy()
    except LogUnreadable as error:
        return str(error)
    return ""
