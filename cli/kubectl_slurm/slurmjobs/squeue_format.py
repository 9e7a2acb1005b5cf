"""squeue's -o: `%i`, `%.8j`, `%-20R`: fields of SlurmJobs by squeue's letters. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from kubectl_slurm.errors import BadUsage
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.terminal.screen import one_line
from kubectl_slurm.terminal.times import clock, elapsed

FIELD = re.compile(r"%(?P<right>\.)?(?P<left>-)?(?P<width>[0-9]{1,4})?(?P<letter>.)", re.DOTALL)
Value = Callable[[SlurmJobView], str]


def place(job: SlurmJobView) -> str:
    """Where it runs, or in brackets why it does not."""
    if job.being_cancelled:
        return "(Cancelling)"
    paused_by_slurm = job.phase == "Suspended" and job.state in {"SUSPENDED", "STOPPED"}
    if job.node_list and (job.phase in {"Running", "Succeeded"} or paused_by_slurm):
        return job.node_list
    reason = job.reason or ("Submitting" if not job.in_slurm else "None")
    return f"({reason})"


def time_used(job: SlurmJobView) -> str:
    return elapsed(job.elapsed_s(datetime.now(UTC))) or "0:00"


LETTERS: Mapping[str, tuple[str, Value]] = {
    "a": ("ACCOUNT", lambda job: str(job.spec.get("account") or "")),
    "A": ("JOBID", lambda job: job.job_id),
    "D": ("NODES", lambda job: job.nodes),
    "e": ("END_TIME", lambda job: clock(job.ended_at)),
    "i": ("JOBID", lambda job: job.shown_id),
    "j": ("NAME", lambda job: job.name),
    "l": ("TIME_LIMIT", lambda job: job.time_limit),
    "M": ("TIME", time_used),
    "N": ("NODELIST", lambda job: job.node_list),
    "P": ("PARTITION", lambda job: job.partition),
    "q": ("QOS", lambda job: str(job.spec.get("qos") or "")),
    "r": ("REASON", lambda job: job.reason),
    "R": ("NODELIST(REASON)", place),
    "S": ("START_TIME", lambda job: clock(job.started_at) if job.has_begun else ""),
    "t": ("ST", lambda job: job.code),
    "T": ("STATE", lambda job: job.state),
    "u": ("USER", lambda job: job.user),
    "V": ("SUBMIT_TIME", lambda job: clock(job.submitted_at)),
    "Z": ("WORK_DIR", lambda job: str(job.spec.get("workingDirectory") or "")),
}


def check_format(text: str) -> None:
    """Refuse a letter that a SlurmJob has nothing for."""
    for field in FIELD.finditer(text):
        if field["letter"] not in {*LETTERS, "%"}:
            letters = "".join(LETTERS)
            raise BadUsage(f"--output: a SlurmJob has nothing for {field[0]!r}; the letters are {letters}")


def heading(text: str) -> str:
    return FIELD.sub(lambda field: _padded(field, LETTERS.get(field["letter"], ("%",))[0]), text)


def line(text: str, job: SlurmJobView) -> str:
    def value(field: re.Match[str]) -> str:
        if field["letter"] == "%":
            return "%"
        return _padded(field, one_line(LETTERS[field["letter"]][1](job)))

    return FIELD.sub(value, text)


def _padded(field: re.Match[str], value: str) -> str:
    """As squeue: cut to the width, and on the left of it unless a dot comes before."""
    if not field["width"]:
        return value
    width = int(field["width"])
    return value[:width].rjust(width) if field["right"] else value[:width].ljust(width)
