"""squeue: the whole queue, or single jobs. Every record is a row; `views.queue_jobs` makes jobs of the rows.

-O without widths cuts no field, on 22.05 and 24.11; -o lacks the exit code, the restarts and the output
paths. Without -r an array's tasks that are not split off yet are one row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from sys import intern

from redbox.slurm.text.job_row import JobRow
from redbox.slurm.text.record_format import (
    ParseReport,
    RecordFormat,
    read_records,
    split_fields,
    split_records,
)
from redbox.slurm.text.states import end_of, has_ended, has_not_begun, read_exit, read_state
from redbox.slurm.text.values import TIME_FORMAT, read_number, read_time, text_or_none

ENVIRONMENT = {**TIME_FORMAT, "SLURM_BITSTR_LEN": "0"}
"""0: array expressions of any length are not cut."""
UNKNOWN_OPTION = "unrecognized option"
UNKNOWN_JOB = "Invalid job id specified"
FIELDS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "UserID", "State", "exit_code",
    "RestartCnt", "Requeue", "SubmitTime", "StartTime", "EndTime", "Reason", "Partition", "Account", "QOS",
    "NodeList", "UserName", "Name", "Comment", "STDOUT", "STDERR", "WorkDir",
)  # fmt: skip
START_FIELDS = (*FIELDS, "SchedNodes")
COMMENT, JOB_ID, ARRAY_ID, HET_ID = map(FIELDS.index, ("Comment", "JobID", "ArrayJobID", "HetJobID"))
SEPARATOR = "\x1f"
NO_HET_JOB = "0"
CHUNK = 10_000  # ids in one call: Linux takes no argument of more than 128 KiB

RecordFilter = Callable[[str, str], bool]
"""Whether a record with this job id and this comment is wanted; other records are not parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow(JobRow):
    """One record of squeue."""

    job_id: str
    array_job_id: str
    het_job_id: str | None
    requeue: bool
    comment: str

    @property
    def leader(self) -> str:
        """The id of the whole job: the array's, the first component's, or its own."""
        return self.het_job_id or self.array_job_id


@dataclass(frozen=True, slots=True)
class StartRow:
    """One record of squeue, and what the scheduler expects of it while it waits.

    Both change with each cycle of Slurm's backfill scheduler, so they are not in a `QueueRow`, which is
    compared from poll to poll.
    """

    job: QueueRow
    at: datetime | None  # never in the past; the begin time, where the scheduler passes the job over
    nodes: str


def environment(record_format: RecordFormat) -> dict[str, str]:
    """The format that -O would take is in here, as every user of the host can read arguments."""
    return {**ENVIRONMENT, "SQUEUE_FORMAT2": record_format.format()}


def all_jobs_argv(users: Collection[str] = ()) -> list[str]:
    """Jobs in every state and every partition, hidden ones too, of this cluster only."""
    argv = ["squeue", "--noheader", "--all", "--local", "--states=all"]
    return [*argv, f"--user={','.join(users)}"] if users else argv


def states_argv() -> list[str]:
    """Ids and states of all jobs: one RPC, without slurmctld's locks where it caches states.

    A poll is two RPCs, as squeue also fetches the partitions. With filtering options this call fails or
    prints nothing.
    """
    return ["squeue", "--only-job-state", "--noheader", "--local", "--states=all", "--format=%F %A %T"]


def fingerprint(text: str, job_ids: Collection[str]) -> int:
    """A number of the states of these jobs and tasks, independent of their order."""
    return hash(frozenset(line for line in text.splitlines() if line.partition(" ")[0] in job_ids))


def single_jobs_argv(job_ids: Collection[str]) -> list[str]:
    """These jobs, with all tasks and components."""
    return [*all_jobs_argv(), f"--jobs={','.join(job_ids)}"]


def read_rows(text: str, record_format: RecordFormat, report: ParseReport) -> Iterator[QueueRow]:
    """All rows; a record that cannot be parsed is dropped and counted."""
    return RowReader().read(text, record_format, report)


def read_start_rows(text: str, record_format: RecordFormat, report: ParseReport) -> Iterator[StartRow]:
    """All rows of START_FIELDS; a record that cannot be parsed is dropped and counted."""
    return read_records(text, record_format, report, _read_start_row)


def _read_start_row(fields: dict[str, str]) -> StartRow | None:
    row = read_row(fields)
    if row is None:
        return None
    return StartRow(row, read_time(fields["StartTime"]), text_or_none(fields["SchedNodes"]) or "")


def name_of_task(row: QueueRow) -> str | None:
    """`7_1`, of a task of an array that has an id of its own."""
    return f"{row.array_job_id}_{row.array_task}" if (row.array_task or "").isdigit() else None


class RowReader:
    """Parses only records that are wanted, and changed since the last poll.

    Most did not: a poll of ten thousand waiting jobs costs little more than comparing digests. Others' jobs,
    which may be many more, cost a split each.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, QueueRow] = {}  # by the digest of the record
        self._now: dict[bytes, QueueRow] = {}

    def start_poll(self) -> None:
        """Rows that the new poll does not show are dropped at the next one."""
        self._last, self._now = self._now, {}

    def read(
        self, text: str, record_format: RecordFormat, report: ParseReport, wanted: RecordFilter | None = None
    ) -> Iterator[QueueRow]:
        for record in split_records(text, record_format, report):
            fields = split_fields(record, record_format, report)
            if fields is None or (wanted is not None and not is_wanted(fields, wanted)):
                continue
            digest = blake2b(SEPARATOR.join(fields).encode(), digest_size=16).digest()
            row = self._last.get(digest) or read_row(dict(zip(record_format.fields, fields, strict=True)))
            if row is None:
                report.dropped += 1
                continue
            if SEPARATOR not in record:  # else two different records could become equal
                self._now[digest] = row
            yield row


def is_wanted(fields: Sequence[str], wanted: RecordFilter) -> bool:
    job_id, array_id, comment = fields[JOB_ID], fields[ARRAY_ID], fields[COMMENT]
    if wanted(job_id, comment) or (array_id != job_id and wanted(array_id, comment)):
        return True
    return fields[HET_ID] != NO_HET_JOB and wanted(fields[HET_ID], comment)


def read_row(fields: dict[str, str]) -> QueueRow | None:
    """None where an id, the uid or the state cannot be parsed."""
    job_id, array_job_id, uid = (read_number(fields[name]) for name in ("JobID", "ArrayJobID", "UserID"))
    state, _ = read_state(fields["State"])
    if job_id is None or array_job_id is None or uid is None or not state:
        return None
    shown = read_exit(fields["exit_code"])
    het_job_id = text_or_none(fields["HetJobID"])
    nodes = text_or_none(fields["NodeList"]) or ""
    return QueueRow(
        job_id=fields["JobID"],
        array_job_id=fields["ArrayJobID"],
        array_task=text_or_none(fields["ArrayTaskID"]),
        het_job_id=het_job_id if het_job_id != NO_HET_JOB else None,
        is_het=het_job_id not in {None, NO_HET_JOB},
        het_offset=read_number(fields["HetJobOffset"]) or 0,
        uid=uid,
        state=intern(state),
        exit=end_of(state, shown, had_nodes=bool(nodes)),
        restarts=read_number(fields["RestartCnt"]) or 0,
        requeue=fields["Requeue"] != "0",
        submitted_at=read_time(fields["SubmitTime"]),
        # Slurm shows the expected start of a waiting job, and the end of a running job's time limit.
        started_at=None if has_not_begun(state) else read_time(fields["StartTime"]),
        ended_at=read_time(fields["EndTime"]) if has_ended(state) else None,
        reason=intern(text_or_none(fields["Reason"]) or ""),
        partition=intern(fields["Partition"]),
        account=intern(text_or_none(fields["Account"]) or ""),
        qos=intern(text_or_none(fields["QOS"]) or ""),
        nodes=nodes,
        user=intern(fields["UserName"]),
        name=fields["Name"],
        comment="" if fields["Comment"] == "(null)" else fields["Comment"],
        stdout=text_or_none(fields["STDOUT"]),
        stderr=text_or_none(fields["STDERR"]),
        working_directory=text_or_none(fields["WorkDir"]) or "",
    )
