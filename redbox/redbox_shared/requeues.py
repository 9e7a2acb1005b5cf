"""The annotation of a SlurmJob that asks for a requeue, `redbox.dev/requeue: "1234/2"` of run 2.

The operator passes it on while run 2 of Slurm job 1234 is the current one. So it is done once, whatever is
sent twice, and whatever restarts: the run that follows has the next number.
"""

from __future__ import annotations

ANNOTATION = "redbox.dev/requeue"
REFUSED = "RequeueRefused"
"""The reason of the event about a requeue that was refused; its message begins with the value."""


def requeue_of(job_id: str, run: int, request: str = "") -> str:
    """The annotation's value; `request` tells a second request for a run from a first that was refused."""
    return f"{job_id}/{run}" + (f"/{request}" if request else "")


def asks_for(value: str, job_id: str, run: int) -> bool:
    """Whether the value is about this run."""
    return value.split("/")[:2] == [job_id, str(run)]
