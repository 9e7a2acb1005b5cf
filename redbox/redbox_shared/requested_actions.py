"""Annotations of a SlurmJob that request an action in Slurm; the operator has it done.

`redbox.dev/requeue: "1234/2"` requeues run 2 of Slurm job 1234, while that is the current one. So it is done
once, whatever is sent twice, and whatever restarts: the run that follows has the next number.

`redbox.dev/release: "1234/2"` releases it where Slurm holds that run, since it could not launch it, or its
script or its user has held it there. One that was refused is not sent again: another value asks again.

`redbox.dev/cancel-tasks: "1234/2/3,7"` cancels tasks 3 and 7 of an array, likewise.

`redbox.dev/cancel: "true"` cancels the SlurmJob, which stays with its record and its log. It holds for as
long as it is there: no attempt begins any more, and what Slurm has is cancelled.
"""

from __future__ import annotations

REQUEUE = "redbox.dev/requeue"
REQUEUE_REFUSED = "RequeueRefused"
"""The reason of the event about a requeue that was refused; its message begins with the value."""
RELEASE = "redbox.dev/release"
RELEASE_REFUSED = "ReleaseRefused"
"""Likewise, about a release."""
CANCEL_TASKS = "redbox.dev/cancel-tasks"
MOST_TASKS = 20
"""In one request: each is a call of Slurm."""
LONGEST_INDEX = 9
CANCEL_TASKS_REFUSED = "CancelTasksRefused"
TASKS_CANCELLED = "TasksCancelled"
"""The reason of the event about tasks that were cancelled, which begins with the value, too."""
CANCEL = "redbox.dev/cancel"
REQUESTED = "true"


def of_run(job_id: str, run: int, request: str = "") -> str:
    """The annotation's value; `request` tells a second request for a run from a first that was refused."""
    return f"{job_id}/{run}" + (f"/{request}" if request else "")


def asks_for(value: str, job_id: str, run: int) -> bool:
    """Whether the value is about this run."""
    return value.split("/")[:2] == [job_id, str(run)]


def tasks_in(value: str) -> tuple[list[int], str]:
    """Of the value of CANCEL_TASKS: as many as one request may have, and why others are left out."""
    words = value.split("/")[2:3]  # behind job id and run
    words = words[0].split(",") if words else []
    tasks = [int(word) for word in words[:MOST_TASKS] if word.isdecimal() and len(word) <= LONGEST_INDEX]
    if tasks and len(tasks) == len(words):
        return tasks, ""
    left_out = f"{len(words) - len(tasks)} of the {len(words)} named are left out"
    return tasks, f"{left_out}: a request names 1 to {MOST_TASKS} tasks, by their numbers"
