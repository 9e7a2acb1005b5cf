"""sacct: the accounting's records of jobs that slurmctld has purged, each run a row (-D).

`sacct -e` lists the fields that a release has. In text, exit codes above 128 lose their highest bit (200 is
shown as 72:0, on 22.05 and 24.11); where that may have happened the exit codes are read from the JSON form,
which has them complete from 23.02 on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from redbox.slurm.text import array_expressions
from redbox.slurm.text.job_row import JobRow
from redbox.slurm.text.record_format import ParseReport, split_counted
from redbox.slurm.text.states import end_of, read_exit, read_state
from redbox.slurm.text.values import TIME_FORMAT, read_number, read_time, text_or_none

ENVIRONMENT = {**TIME_FORMAT, "TZ": "UTC"}
CHUNK = 1000  # ids in one call
FIELDS = (
    "JobID", "JobIDRaw", "UID", "State", "ExitCode", "Restarts", "Submit", "Start", "End", "Partition",
    "Account", "QOS", "NodeList", "Reason", "User", "JobName", "WorkDir", "StdOut", "StdErr", "Comment",
    "SubmitLine",
)  # fmt: skip
NEEDED = frozenset({"JobID", "JobIDRaw", "UID", "State", "ExitCode", "Submit", "Start", "End"})
LATE = {"Restarts": "24.11", "StdOut": "24.05", "StdErr": "24.05", "SubmitLine": "21.08"}
HIGHEST_KEPT = 128
COMMENT_OPTION = re.compile(r"(?:^|\s)--comment=(\S+)")
NO_NODES = "None assigned"
HET_ID = re.compile(r"([0-9]{1,18})\+([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class AccountingRow(JobRow):
    """One run of a job, of one task, or of the tasks that were never split off."""

    job_id: str  # of the whole array or het job
    raw_id: str
    cancelled_by: int | None
    mark: str


def field_names_argv() -> list[str]:
    return ["sacct", "--helpformat"]


def read_field_names(text: str, wanted: Collection[str] = FIELDS) -> tuple[str, ...]:
    """Those of the wanted fields that this release has."""
    listed = set(text.split())
    return tuple(name for name in wanted if name in listed)


def jobs_argv(fields: Collection[str], token: str, job_ids: Collection[str]) -> list[str]:
    """All runs of these jobs, however old."""
    return [*_rows(fields, token), f"--jobs={','.join(job_ids)}"]


def user_argv(fields: Collection[str], token: str, user: str, since: datetime) -> list[str]:
    """All runs of a user's jobs that were in the queue at any time since then."""
    return [
        *_rows(fields, token),
        f"--user={user}",
        f"--starttime={since.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
        "--endtime=now",
    ]


def _rows(fields: Collection[str], token: str) -> list[str]:
    options = ["--noheader", "--allocations", "--duplicates", "--local", "--parsable"]
    return ["sacct", *options, f"--delimiter={token}", f"--format={','.join(fields)}"]


def read_rows(text: str, fields: Collection[str], token: str, report: ParseReport) -> Iterator[AccountingRow]:
    for values in split_counted(text, len(fields), token, report):
        row = read_row(dict(zip(fields, values, strict=True)))
        if row is None:
            report.dropped += 1
        else:
            yield row


def read_row(fields: Mapping[str, str]) -> AccountingRow | None:
    """None where an id, the uid or the state cannot be parsed."""
    uid, raw_id = read_number(fields["UID"]), read_number(fields["JobIDRaw"])
    state, cancelled_by = read_state(fields["State"])
    if uid is None or raw_id is None or not state:
        return None
    job_id, task, het_offset = read_id(fields["JobID"])
    shown = read_exit(fields["ExitCode"])
    return AccountingRow(
        job_id=job_id,
        raw_id=fields["JobIDRaw"],
        array_task=task,
        het_offset=het_offset,
        uid=uid,
        state=state,
        cancelled_by=cancelled_by,
        exit=end_of(state, shown, had_nodes=fields.get("NodeList") != NO_NODES),
        restarts=read_number(fields.get("Restarts", "")) or 0,
        submitted_at=read_time(fields["Submit"]),
        started_at=read_time(fields["Start"]),
        ended_at=read_time(fields["End"]),
        partition=fields.get("Partition", ""),
        account=fields.get("Account", ""),
        qos=fields.get("QOS", ""),
        nodes=text_or_none(fields.get("NodeList", "")) or "",
        reason=text_or_none(fields.get("Reason", "")) or "",
        user=fields.get("User", ""),
        name=fields.get("JobName", ""),
        working_directory=fields.get("WorkDir", ""),
        stdout=text_or_none(fields.get("StdOut", "")),
        stderr=text_or_none(fields.get("StdErr", "")),
        mark=fields.get("Comment", "") or mark_in(fields.get("SubmitLine", "")),
    )


def read_id(text: str) -> tuple[str, str | None, int]:
    """The id of the whole array or het job, the task or tasks, and the offset in a het job."""
    job_id, task = array_expressions.read_array_id(text)
    het = HET_ID.fullmatch(job_id)
    return (het[1], task, int(het[2])) if het else (job_id, task, 0)


def mark_in(submit_line: str) -> str:
    """The value of the last --comment of a submit line, for accounting that stores no comments."""
    found = COMMENT_OPTION.findall(submit_line)
    return found[-1] if found else ""


def id_of_one(row: AccountingRow) -> str:
    """What sacct finds this job or task alone by: the last task's own id is its array's, so of all tasks."""
    return f"{row.job_id}_{row.array_task}" if (row.array_task or "").isdigit() else row.raw_id


def exit_codes_argv(job_ids: Collection[str]) -> list[str]:
    """These jobs as JSON, for their complete exit codes."""
    return ["sacct", "--json", "--allocations", "--duplicates", "--local", f"--jobs={','.join(job_ids)}"]


def may_have_lost_128(row: AccountingRow) -> bool:
    return row.state == "FAILED" and row.exit.code is not None and row.exit.code < HIGHEST_KEPT


def read_exit_codes(output: bytes) -> dict[tuple[str, int], int]:
    """Exit codes by raw id and end time; empty for a release whose JSON has none (22.05)."""
    try:
        jobs = json.loads(output)["jobs"]
        return {
            (str(job["job_id"]), int(job["time"]["end"])): int(job["exit_code"]["return_code"]["number"])
            for job in jobs
            if isinstance(job["exit_code"]["return_code"], dict) and job["exit_code"]["return_code"]["set"]
        }
    except (ValueError, KeyError, TypeError):
        return {}
