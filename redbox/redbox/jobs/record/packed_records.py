"""Jobs that have ended, kept small: thirty days of them are in memory, and few are requested.

The fields that lists, watches, retention and counts need stay as they are; the rest is the journal's text,
compressed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime

from redbox.core.domain import JobKey, UnixUser
from redbox.jobs.record.codec import from_text, to_text
from redbox.jobs.record.record import JobRecord, Stage, shared
from redbox_api.models import Phase

# Words that records share: a text alone is too short to have found them. Changing them is safe, for packed
# records live in memory only.
SHARED = (
    b'"signal":"exit_code":"message":"It exited with code ","warnings":["It was cancelled by '
    b'"cancel_requested":true,"state":"FAILED"CANCELLED"TIMEOUT","phase":"Failed"Cancelled"Succeeded",'
    b'"task_groups":[["0-"array_size":"spec_digest":"body_digest":"{"mark":"rb1."body_id":"job_name":'
    b'"working_directory":"/home//redbox//created_at":17,"last_submit_at":17,"stage":"bound","job_id":"",'
    b'"bound_at":17,"confirmed":true,"final_at":17,"user":["",200],"seen":{"state":"COMPLETED",'
    b'"reason":"None","exit_code":0,"name":"","partition":"debug","account":"","qos":"normal","nodes":"n",'
    b'"submitted_at":17,"started_at":17,"ended_at":17,"restarts":0,"requeue":false,"stdout":"/home/'
    b'/slurm-.out","stderr":"/slurm-.err","working_directory":"/home/"}}'
)
WINDOW = -12  # 4 KiB, raw: no header and no checksum for what never leaves this process
MEMORY_LEVEL = 4  # enough for a text of a kilobyte, and quicker to set up than the default


@dataclass(frozen=True, slots=True)
class PackedRecord:
    """A job that has ended and that no poll looks for."""

    key: JobKey
    user: UnixUser
    mark: str
    stage: Stage
    phase: Phase
    settled_at: datetime
    revision: int
    text: bytes

    @property
    def watched(self) -> bool:
        return False


RecordSummary = JobRecord | PackedRecord
"""The fields of PackedRecord are at hand for every job, packed or not."""


def pack(record: JobRecord) -> RecordSummary:
    """The record, small if it has ended."""
    if record.watched:
        return record
    return _packed(record.key, record.revision, record, to_text(record))


def unpack(outline: RecordSummary) -> JobRecord:
    if isinstance(outline, JobRecord):
        return outline
    words = zlib.decompressobj(WINDOW, SHARED)
    text = (words.decompress(outline.text) + words.flush()).decode()
    return from_text(outline.key, outline.revision, text)


def summary_from_text(key: JobKey, revision: int, text: str) -> RecordSummary:
    """Also of a record that is packed, the whole text is read: damage shows now, and not when it is shown."""
    record = from_text(key, revision, text, with_tasks=False)
    return from_text(key, revision, text) if record.watched else _packed(key, revision, record, text)


def _packed(key: JobKey, revision: int, record: JobRecord, text: str) -> PackedRecord:
    words = zlib.compressobj(wbits=WINDOW, memLevel=MEMORY_LEVEL, zdict=SHARED)
    return PackedRecord(
        key=key,
        user=shared(record.user),
        mark=record.mark,
        stage=record.stage,
        phase=record.phase,
        settled_at=record.settled_at,
        revision=revision,
        text=words.compress(text.encode()) + words.flush(),
    )
