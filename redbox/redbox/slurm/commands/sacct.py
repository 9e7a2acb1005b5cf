"""sacct: the accounting's records of jobs that slurmctld has purged, each run a row (-D).

There are two queries, because sacct takes its delimiter as an argument, which every user of the host can read
and copy into a name in time. FIELDS are what no user writes, one line a run. TEXTS are what users wrote, in
columns of fixed width, for one row of each job.

`sacct -e` lists the fields that a release has. In text, exit codes above 128 lose their highest bit (200 is
shown as 72:0, on 22.05 and 24.11); where that may have happened the exit codes are read from the JSON form,
which has them complete from 23.02 on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, Self

from redbox.slurm.text import array_expressions
from redbox.slurm.text.fixed_columns import Columns, Field
from redbox.slurm.text.job_row import JobRow
from redbox.slurm.text.record_format import ParseReport, decode, split_table
from redbox.slurm.text.states import end_of, read_exit, read_state
from redbox.slurm.text.values import TIME_FORMAT, read_number, read_time, text_or_none

ENVIRONMENT = {**TIME_FORMAT, "TZ": "UTC"}
CHUNK = 1000  # ids in one call
FIELDS = (
    "JobID", "JobIDRaw", "UID", "State", "ExitCode", "Restarts", "Submit", "Start", "End", "Partition", "QOS",
    "NodeList", "Reason", "User",
)  # fmt: skip
TEXTS = ("Account", "JobName", "WorkDir", "StdOut", "StdErr", "Comment", "SubmitLine")
"""The account too: a site that enforces no associations takes any."""
NEEDED = frozenset({"JobID", "JobIDRaw", "UID", "State", "ExitCode", "Submit", "Start", "End"})
LATE = {"Restarts": "24.11", "StdOut": "24.05", "StdErr": "24.05", "SubmitLine": "21.08"}
HIGHEST_KEPT = 128
OWN_COMMENT = re.compile(r"\S*sbatch --parsable --comment=(\S+)")
COMMENT_OPTION = re.compile(r"(?:^|\s)--comment=(\S+)")
NO_NODES = "None assigned"
HET_ID = re.compile(r"([0-9]{1,18})\+([0-9]{1,9})")


class TextQuery(NamedTuple):
    """How texts are asked for: the width of each column in bytes, and for how many ids in one call."""

    width: int
    chunk: int


TEXT_QUERIES = (TextQuery(256, CHUNK), TextQuery(4096, 200))
"""The second one for jobs with a longer text, up to the longest path: 29 kB a row."""
IDS_WIDTH = 20


class Run(NamedTuple):
    """A run in the accounting, where it is unique."""

    raw_id: str
    submitted_at: datetime | None


class AccountedRun(Protocol):
    """The fields that tell of which job a row is."""

    @property
    def job_id(self) -> str: ...
    @property
    def raw_id(self) -> str: ...
    @property
    def array_task(self) -> str | None: ...
    @property
    def het_offset(self) -> int: ...
    @property
    def uid(self) -> int: ...
    @property
    def submitted_at(self) -> datetime | None: ...
    @property
    def started_at(self) -> datetime | None: ...


JobPart = tuple[str, int, int, datetime | None]


@dataclass(frozen=True, slots=True)
class JobTexts:
    """What the user wrote of a job, or of a component of it."""

    account: str = ""
    name: str = ""
    working_directory: str = ""
    stdout: str | None = None
    stderr: str | None = None
    mark: str = ""
    whole: bool = True
    """Whether no column was too narrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountingRow(JobRow):
    """One run of a job, of one task, or of the tasks that were never split off."""

    job_id: str  # of the whole array or het job
    raw_id: str
    cancelled_by: int | None
    mark: str = ""

    def with_texts(self, texts: JobTexts) -> Self:
        return replace(
            self,
            account=texts.account,
            name=texts.name,
            working_directory=texts.working_directory,
            stdout=texts.stdout,
            stderr=texts.stderr,
            mark=texts.mark,
        )


def field_names_argv() -> list[str]:
    return ["sacct", "--helpformat"]


def read_field_names(text: str, wanted: Collection[str] = FIELDS) -> tuple[str, ...]:
    """Those of the wanted fields that this release has."""
    listed = set(text.split())
    return tuple(name for name in wanted if name in listed)


def jobs_argv(fields: Collection[str], job_ids: Collection[str]) -> list[str]:
    """All runs of these jobs, however old."""
    return [*_rows(fields), f"--jobs={','.join(job_ids)}"]


def user_argv(fields: Collection[str], user: str, since: datetime) -> list[str]:
    """All runs of a user's jobs that were in the queue at any time since then."""
    return [
        *_rows(fields),
        f"--user={user}",
        f"--starttime={since.astimezone(UTC):%Y-%m-%dT%H:%M:%S}",
        "--endtime=now",
    ]


def _rows(fields: Collection[str]) -> list[str]:
    options = ["--noheader", "--allocations", "--duplicates", "--local", "--parsable2"]
    return ["sacct", *options, f"--format={','.join(fields)}"]


def read_rows(text: str, fields: Collection[str], report: ParseReport) -> Iterator[AccountingRow]:
    """The rows, still without texts."""
    for values in split_table(text, len(fields), report):
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
        qos=fields.get("QOS", ""),
        nodes=text_or_none(fields.get("NodeList", "")) or "",
        reason=text_or_none(fields.get("Reason", "")) or "",
        user=fields.get("User", ""),
        is_het=HET_ID.fullmatch(fields["JobID"]) is not None,
    )


def read_id(text: str) -> tuple[str, str | None, int]:
    """The id of the whole array or het job, the task or tasks, and the offset in a het job."""
    job_id, task = array_expressions.read_array_id(text)
    het = HET_ID.fullmatch(job_id)
    return (het[1], task, int(het[2])) if het else (job_id, task, 0)


def run_of(row: AccountedRun) -> Run:
    return Run(row.raw_id, row.submitted_at)


def part_of(row: AccountedRun) -> JobPart:
    """What rows with the same texts share: all tasks of an array do, until one of them is requeued."""
    return (row.job_id, row.het_offset, row.uid, row.submitted_at)


def representatives(rows: Iterable[AccountedRun]) -> dict[JobPart, AccountedRun]:
    """One row of each part: of an array that of a single task, as its own id stands for all of its rows."""
    shown: dict[JobPart, AccountedRun] = {}
    for row in rows:
        part = part_of(row)
        if part not in shown or (row.array_task or "").isdigit():
            shown[part] = row
    return shown


def text_columns(fields: Collection[str], width: int) -> Columns:
    """Columns for these of the TEXTS, after those that name the run."""
    return Columns({"JobIDRaw": IDS_WIDTH, "Submit": IDS_WIDTH, **dict.fromkeys(fields, width)})


def texts_argv(columns: Columns, job_ids: Collection[str]) -> list[str]:
    options = ["--noheader", "--allocations", "--duplicates", "--local"]
    return ["sacct", *options, f"--format={columns.format()}", f"--jobs={','.join(job_ids)}"]


def read_texts(output: bytes, columns: Columns, report: ParseReport) -> Iterator[tuple[Run, JobTexts]]:
    for record in columns.read(output, report):
        yield Run(record["JobIDRaw"].text, read_time(record["Submit"].text)), _texts_of(record)


def _texts_of(record: Mapping[str, Field]) -> JobTexts:
    """A text that was cut is unknown."""
    texts = {name: "" if field.cut else field.text for name, field in record.items()}
    comment, line = (record.get(name, Field("")) for name in ("Comment", "SubmitLine"))
    mark = comment.text or mark_in(line.text)
    is_mark_whole = bool(comment.text) or not line.cut or (mark != "" and not line.text.endswith(mark))
    paths = ("Account", "JobName", "WorkDir", "StdOut", "StdErr")
    return JobTexts(
        account=texts.get("Account", ""),
        name=texts.get("JobName", ""),
        working_directory=texts.get("WorkDir", ""),
        stdout=text_or_none(texts.get("StdOut", "")),
        stderr=text_or_none(texts.get("StdErr", "")),
        mark=mark if is_mark_whole else "",
        whole=is_mark_whole and not any(name in record and record[name].cut for name in paths),
    )


def mark_in(submit_line: str) -> str:
    """The mark in a submit line, for accounting that stores no comments.

    red-box gives the comment first; earlier releases gave it after the options of the request.
    """
    own = OWN_COMMENT.match(submit_line)
    found = [own[1]] if own else COMMENT_OPTION.findall(submit_line)
    return found[-1] if found else ""


def id_of_one(row: AccountedRun) -> str:
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
        jobs = json.loads(decode(output))["jobs"]
        return {
            (str(job["job_id"]), int(job["time"]["end"])): int(job["exit_code"]["return_code"]["number"])
            for job in jobs
            if isinstance(job["exit_code"]["return_code"], dict) and job["exit_code"]["return_code"]["set"]
        }
    except (ValueError, KeyError, TypeError):
        return {}
