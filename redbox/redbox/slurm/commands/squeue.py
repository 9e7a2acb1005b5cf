"""squeue: one look at the queue, or at single jobs. Every record is a row; `folding` makes jobs of them.

-O takes fields without width and so cuts none, on 22.05 and 24.11 alike; -o lacks the exit code, the
restarts and the output paths. Without -r an array's tasks that are not split off yet are one row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from sys import intern

from redbox.slurm.text.framing import Frame, Tally, split_fields, split_records
from redbox.slurm.text.states import Exit, end_of, has_ended, has_not_begun, read_exit, read_state
from redbox.slurm.text.values import TIME_FORMAT, read_number, read_time, text_or_none

ENVIRONMENT = {**TIME_FORMAT, "SLURM_BITSTR_LEN": "0"}
"""0: array expressions in full, whatever their length."""
UNKNOWN_OPTION = "unrecognized option"
UNKNOWN_JOB = "Invalid job id specified"
FIELDS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "UserID", "State", "exit_code",
    "RestartCnt", "Requeue", "SubmitTime", "StartTime", "EndTime", "Reason", "Partition", "Account", "QOS",
    "NodeList", "UserName", "Name", "Comment", "STDOUT", "STDERR", "WorkDir",
)  # fmt: skip
JOB_ID, COMMENT = FIELDS.index("JobID"), FIELDS.index("Comment")
SEPARATOR = "\x1f"
ARRAY_ID, HET_ID = FIELDS.index("ArrayJobID"), FIELDS.index("HetJobID")

Wanted = Callable[[str, str], bool]
"""Whether a record with this job id and this comment can matter: the rest is never made into objects."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One record of squeue."""

    job_id: str
    array_job_id: str
    array_task: str | None  # "7", or for what is not split off yet "8-20:2%3"
    het_job_id: str | None
    het_offset: int
    uid: int
    state: str
    exit: Exit
    restarts: int
    requeue: bool
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    reason: str
    partition: str
    account: str
    qos: str
    nodes: str
    user: str
    name: str
    comment: str
    stdout: str | None
    stderr: str | None
    working_directory: str

    @property
    def leader(self) -> str:
        """The id that the whole job goes by: the array's, the first component's, or its own."""
        return self.het_job_id or self.array_job_id


def all_jobs(frame: Frame, users: Collection[str] = ()) -> list[str]:
    """Jobs in every state and every partition, hidden ones too, of this cluster only."""
    argv = ["squeue", "--noheader", "--all", "--local", "--states=all", f"--Format={frame.format()}"]
    return [*argv, f"--user={','.join(users)}"] if users else argv


def states() -> list[str]:
    """Ids and states of all jobs: one call of slurmctld, without its locks where it caches states.

    A look is two calls, as squeue also fetches the partitions. Options that filter make it fail or say
    nothing: it is for ids and states only.
    """
    return ["squeue", "--only-job-state", "--noheader", "--local", "--states=all", "--format=%F %A %T"]


def fingerprint(text: str, job_ids: Collection[str]) -> int:
    """The same for the same states of these jobs, in whatever order; an array has the states of its tasks."""
    return hash(frozenset(line for line in text.splitlines() if line.partition(" ")[0] in job_ids))


def single_jobs(frame: Frame, job_ids: Collection[str]) -> list[str]:
    """These jobs, an array or het job with all its parts."""
    return [*all_jobs(frame), f"--jobs={','.join(job_ids)}"]


def read_rows(text: str, frame: Frame, tally: Tally) -> Iterator[QueueRow]:
    """All rows; a record whose fields are not what they must be is dropped and counted."""
    return RowReader().read(text, frame, tally)


class RowReader:
    """Reads look after look, and takes apart only records that were not there in the last one, word for word.

    Most are: that makes a look at ten thousand jobs that wait as cheap as their text.
    """

    def __init__(self) -> None:
        self._last: dict[str, QueueRow] = {}
        self._now: dict[str, QueueRow] = {}

    def begin(self) -> None:
        """A new look: what it does not show is forgotten after it."""
        self._last, self._now = self._now, {}

    def read(self, text: str, frame: Frame, tally: Tally, wanted: Wanted | None = None) -> Iterator[QueueRow]:
        for record in split_records(text, frame, tally):
            plain = record.replace(frame.field_end, SEPARATOR)
            row = self._last.get(plain) or self._read(record, frame, tally, wanted)
            if row is not None:
                if SEPARATOR not in record:  # else two records could look the same
                    self._now[plain] = row
                yield row

    def _read(self, record: str, frame: Frame, tally: Tally, wanted: Wanted | None) -> QueueRow | None:
        fields = split_fields(record, frame, tally)
        if fields is None or not (wanted is None or _matters(fields, wanted)):
            return None
        row = read_row(dict(zip(FIELDS, fields, strict=True)))
        if row is None:
            tally.dropped += 1
        return row


def _matters(fields: list[str], wanted: Wanted) -> bool:
    ids = {fields[JOB_ID], fields[ARRAY_ID], fields[HET_ID]}
    return any(wanted(job_id, fields[COMMENT]) for job_id in ids)


def read_row(seen: dict[str, str]) -> QueueRow | None:
    """One record; None where an id, the uid or the state is none."""
    job_id, array_job_id, uid = (read_number(seen[name]) for name in ("JobID", "ArrayJobID", "UserID"))
    state, _ = read_state(seen["State"])
    if job_id is None or array_job_id is None or uid is None or not state:
        return None
    shown = read_exit(seen["exit_code"])
    het_job_id = text_or_none(seen["HetJobID"])
    nodes = text_or_none(seen["NodeList"]) or ""
    return QueueRow(
        job_id=seen["JobID"],
        array_job_id=seen["ArrayJobID"],
        array_task=text_or_none(seen["ArrayTaskID"]),
        het_job_id=het_job_id if het_job_id != "0" else None,
        het_offset=read_number(seen["HetJobOffset"]) or 0,
        uid=uid,
        state=intern(state),
        exit=end_of(state, shown, had_nodes=bool(nodes)),
        restarts=read_number(seen["RestartCnt"]) or 0,
        requeue=seen["Requeue"] != "0",
        submitted_at=read_time(seen["SubmitTime"]),
        # Of a waiting job Slurm shows when it expects to start it, of a running one when its time is over.
        started_at=None if has_not_begun(state) else read_time(seen["StartTime"]),
        ended_at=read_time(seen["EndTime"]) if has_ended(state) else None,
        reason=intern(text_or_none(seen["Reason"]) or ""),
        partition=intern(seen["Partition"]),
        account=intern(text_or_none(seen["Account"]) or ""),
        qos=intern(text_or_none(seen["QOS"]) or ""),
        nodes=nodes,
        user=intern(seen["UserName"]),
        name=seen["Name"],
        comment="" if seen["Comment"] == "(null)" else seen["Comment"],
        stdout=text_or_none(seen["STDOUT"]),
        stderr=text_or_none(seen["STDERR"]),
        working_directory=text_or_none(seen["WorkDir"]) or "",
    )
