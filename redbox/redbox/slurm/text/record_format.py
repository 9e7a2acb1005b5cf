"""Records and fields in the text of Slurm's commands.

Names, comments, directories and submit lines are free text of any user, and may contain newlines, delimiters
and whole forged records. So squeue gets new random separators for every call, in its environment, which no
other user can read: arguments are in /proc/PID/cmdline for all. Records are split at them and never at a
newline, and one with a wrong count of fields is dropped and counted. `split_table` is for fields without free
text, `fixed_columns` for text from a command whose separators are in its arguments.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from redbox.core.workload_manager import WorkloadManagerError

Row = TypeVar("Row")
TOKEN_BYTES = 8


def new_token() -> str:
    """A token that Slurm's formats take literally: no digit first, no comma, no percent sign."""
    return f"~{secrets.token_urlsafe(TOKEN_BYTES)}~"


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The separators of one call: `field_end` after each field, `record_end` after the last."""

    fields: tuple[str, ...]
    field_end: str
    record_end: str

    @classmethod
    def new(cls, fields: Sequence[str]) -> RecordFormat:
        return cls(tuple(fields), new_token(), new_token())

    def format(self) -> str:
        """As -O of squeue and sinfo takes it: without widths, so no field is cut."""
        ends = [self.field_end] * (len(self.fields) - 1) + [self.record_end]
        return ",".join(f"{name}:{end}" for name, end in zip(self.fields, ends, strict=True))


@dataclass(slots=True)
class ParseReport:
    """What could not be parsed of an output: records dropped, and whether its end is missing."""

    dropped: int = 0
    cut: bool = False

    @property
    def complete(self) -> bool:
        return not self.dropped and not self.cut

    def refuse_incomplete(self, command: str) -> None:
        """Raise WorkloadManagerError: of an answer that must be whole a part would be a wrong one."""
        if not self.complete:
            raise WorkloadManagerError(
                f"{command}'s output could not be parsed completely: {self.dropped} records dropped"
            )


def split_records(text: str, record_format: RecordFormat, report: ParseReport) -> Iterator[str]:
    """A generator, so that a hundred thousand parsed records are not in memory at once."""
    start = 0
    while (end := text.find(record_format.record_end, start)) >= 0:
        yield text[start:end].removeprefix("\n")
        start = end + len(record_format.record_end)
    report.cut = report.cut or text[start:].strip() != ""


def split_fields(record: str, record_format: RecordFormat, report: ParseReport) -> list[str] | None:
    """The fields of a record; a record with a wrong count of fields is dropped and counted."""
    fields = record.split(record_format.field_end)
    if len(fields) == len(record_format.fields):
        return fields
    report.dropped += 1
    return None


def read_records(
    text: str, record_format: RecordFormat, report: ParseReport, read: Callable[[dict[str, str]], Row | None]
) -> Iterator[Row]:
    """The rows that `read` makes of the records' fields; a record of which it makes none is counted."""
    for record in split_records(text, record_format, report):
        values = split_fields(record, record_format, report)
        if values is None:
            continue
        row = read(dict(zip(record_format.fields, values, strict=True)))
        if row is None:
            report.dropped += 1
        else:
            yield row


def split_table(text: str, width: int, report: ParseReport) -> Iterator[list[str]]:
    """The fields of each line; only for fields that no user writes (sacct --parsable2)."""
    *lines, rest = text.split("\n")
    report.cut = report.cut or rest.strip() != ""
    for line in lines:
        fields = line.split("|")
        if len(fields) == width:
            yield fields
        else:
            report.dropped += 1


def decode(output: bytes) -> str:
    """Slurm's text; bytes that are not UTF-8 become U+FFFD."""
    return output.decode("utf-8", "replace")
