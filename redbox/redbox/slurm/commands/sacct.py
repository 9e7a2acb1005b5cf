"""sacct: what the accounting remembers of jobs that the queue has forgotten, each run a row (-D).

Which fields a release knows is asked once (`sacct -e`). Its exit codes lose 128 of what is higher (200 is
shown as 72:0, on 22.05 and 24.11); where that may have happened the JSON form is asked, which has them whole
from 23.02 on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from redbox.slurm.text import array_expressions
from redbox.slurm.text.record_format import ParseReport, split_counted
from redbox.slurm.text.states import Exit, end_of, read_exit, read_state
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
DISABLED = "accounting storage is disabled"
HIGHEST_KEPT = 128
COMMENT_OPTION = re.compile(r"(?:^|\s)--comment=(\S+)")
NO_NODES = "None assigned"
HET_ID = re.compile(r"([0-9]+)\+([0-9]+)")


@dataclass(frozen=True, slots=True)
class AccountingRow:
    """One run of a job, of one task, or of the tasks that were never split off."""

    job_id: str  # as the array's or het job's leader has it
    raw_id: str
    array_task: str | None
    het_offset: int
    uid: int
    state: str
    cancelled_by: int | None
    exit: Exit
    restarts: int
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    partition: str
    account: str
    qos: str
    nodes: str
    reason: str
    user: str
    name: str
    working_directory: str
    stdout: str | None
    stderr: str | None
    mark: str


def field_names() -> list[str]:
    return ["sacct", "--helpformat"]


def read_field_names(text: str) -> tuple[str, ...]:
    """Those of our fields that this release knows."""
    known = set(text.split())
    return tuple(name for name in FIELDS if name in known)


def of_jobs(fields: Collection[str], token: str, job_ids: Collection[str]) -> list[str]:
    """All runs of these jobs, whenever they were."""
    return [*_rows(fields, token), f"--jobs={','.join(job_ids)}"]


def of_user(fields: Collection[str], token: str, user: str, since: datetime) -> list[str]:
    """All runs of all jobs of a user that were there at some moment since then."""
    return [
        *_rows(fields, token),
        f"--user={user}",
        f"--starttime={since.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
        "--endtime=now",
    ]


def _rows(fields: Collection[str], token: str) -> list[str]:
    asked = f"--format={','.join(fields)}"
    return [
        "sacct",
        "--noheader",
        "--allocations",
        "--duplicates",
        "--local",
        "--parsable",
        f"--delimiter={token}",
        asked,
    ]


def read_rows(text: str, fields: Collection[str], token: str, tally: ParseReport) -> Iterator[AccountingRow]:
    for values in split_counted(text, len(fields), token, tally):
        row = read_row(dict(zip(fields, values, strict=True)))
        if row is None:
            tally.dropped += 1
        else:
            yield row


def read_row(seen: Mapping[str, str]) -> AccountingRow | None:
    """One record; None where an id, the uid or the state is none."""
    uid, raw_id = read_number(seen["UID"]), read_number(seen["JobIDRaw"])
    state, cancelled_by = read_state(seen["State"])
    if uid is None or raw_id is None or not state:
        return None
    job_id, task = array_expressions.read_array_id(seen["JobID"])
    het = HET_ID.fullmatch(job_id)
    shown = read_exit(seen["ExitCode"])
    line = seen.get("SubmitLine", "")
    return AccountingRow(
        job_id=het[1] if het else job_id,
        raw_id=seen["JobIDRaw"],
        array_task=task,
        het_offset=int(het[2]) if het else 0,
        uid=uid,
        state=state,
        cancelled_by=cancelled_by,
        exit=end_of(state, shown, had_nodes=seen.get("NodeList") != NO_NODES),
        restarts=read_number(seen.get("Restarts", "")) or 0,
        submitted_at=read_time(seen["Submit"]),
        started_at=read_time(seen["Start"]),
        ended_at=read_time(seen["End"]),
        partition=seen.get("Partition", ""),
        account=seen.get("Account", ""),
        qos=seen.get("QOS", ""),
        nodes=text_or_none(seen.get("NodeList", "")) or "",
        reason=text_or_none(seen.get("Reason", "")) or "",
        user=seen.get("User", ""),
        name=seen.get("JobName", ""),
        working_directory=seen.get("WorkDir", ""),
        stdout=text_or_none(seen.get("StdOut", "")),
        stderr=text_or_none(seen.get("StdErr", "")),
        mark=seen.get("Comment", "") or mark_in(line),
    )


def mark_in(submit_line: str) -> str:
    """The comment that the last --comment of a submit line gave: where the accounting stores no comments."""
    found = COMMENT_OPTION.findall(submit_line)
    return found[-1] if found else ""


def exit_codes(raw_ids: Collection[str]) -> list[str]:
    """The same jobs as JSON, for their exit codes."""
    return ["sacct", "--json", "--allocations", "--duplicates", "--local", f"--jobs={','.join(raw_ids)}"]


def may_have_lost_128(row: AccountingRow) -> bool:
    return row.state == "FAILED" and row.exit.code is not None and row.exit.code < HIGHEST_KEPT


def read_exit_codes(output: bytes) -> dict[tuple[str, int], int]:
    """The exit code by raw id and end; of a release whose JSON has none (22.05), nothing."""
    try:
        jobs = json.loads(output)["jobs"]
        return {
            (str(job["job_id"]), int(job["time"]["end"])): int(job["exit_code"]["return_code"]["number"])
            for job in jobs
            if isinstance(job["exit_code"]["return_code"], dict) and job["exit_code"]["return_code"]["set"]
        }
    except (ValueError, KeyError, TypeError):
        return {}
