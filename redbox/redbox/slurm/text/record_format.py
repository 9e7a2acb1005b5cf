"""Records and fields in the text of Slurm's commands, separated by a random token.

Names, comments, directories and submit lines are free text of any user, and may contain newlines, delimiters
and whole forged records. So every call makes a new token, fields and records are split at it and never at a
newline, and a record with a wrong count of fields is dropped and counted.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
        """The argument of -O in squeue and sinfo: without widths, so no field is cut."""
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


def split_counted(text: str, width: int, token: str, report: ParseReport) -> Iterator[list[str]]:
    """The fields of each record where every field ends with one token (sacct --parsable --delimiter)."""
    pieces = text.split(token)
    report.cut = report.cut or pieces[-1].strip() != "" or (len(pieces) - 1) % width != 0
    for start in range(0, len(pieces) - width, width):
        fields = pieces[start : start + width]
        fields[0] = fields[0].removeprefix("\n")
        yield fields


def decode(output: bytes) -> str:
    """Slurm's text; bytes that are not UTF-8 become U+FFFD."""
    return output.decode("utf-8", "replace")
