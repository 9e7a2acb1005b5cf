"""Lines of our own in the log of a job's pod: how they begin, and those about an array's tasks.

The log of an array shows each task as a whole: its heading, its stdout, its stderr. A task without output so
far is read again, `REREAD_AT_ONCE` at a time, and has its heading at the latest when the array is final. What
arrives of a task after others has a heading of its own.
"""

from __future__ import annotations

from redbox_shared.printable import printable

PREFIX = "redbox: "
REREAD_AT_ONCE = 3


def own_line(sentence: str) -> bytes:
    """One printable line, whatever the sentence has."""
    return f"{PREFIX}{printable(' '.join(sentence.split()))}\n".encode()


def task_heading(index: int, state: str, exit_code: int | None, signal: int | None) -> str:
    end = f", signal {signal}" if signal else f", exit code {exit_code}" if exit_code else ""
    return f"task {index}: {state}{end}"


def late_heading(index: int) -> str:
    """Above output of a task that stands below another task's."""
    return f"task {index}: more of its output, which came late"


def tasks_not_listed(directory: str | None) -> str:
    """Of an array whose tasks red-box does not list: there are too many for one answer."""
    where = directory or "the job's working directory"
    return f"the array has too many tasks for one log: the output of each is in a file of its own, in {where}"
