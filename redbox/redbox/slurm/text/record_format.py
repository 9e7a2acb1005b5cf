"""Records and fields in the text of Slurm's commands, parted by a token that nobody could have foreseen.

Names, comments, directories and submit lines are any user's free text and may hold newlines, delimiters and
whole forged records. So every call makes a new token, fields and records are split by it and never by
newline, and what does not have the right count of fields is dropped and counted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

TOKEN_BYTES = 8


def new_token() -> str:
    """A token that Slurm's formats take literally: no digit first, no comma, no percent sign."""
    return f"~{secrets.token_urlsafe(TOKEN_BYTES)}~"


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """How the records of one call are parted: `field_end` after each field, `record_end` after the last."""

    fields: tuple[str, ...]
    field_end: str
    record_end: str

    @classmethod
    def new(cls, fields: Sequence[str], make_token: Callable[[], str] = new_token) -> RecordFormat:
        return cls(tuple(fields), make_token(), make_token())

    def format(self) -> str:
        """The argument of squeue's and sinfo's -O: no widths, so nothing is cut; the ends as suffixes."""
        ends = [self.field_end] * (len(self.fields) - 1) + [self.record_end]
        return ",".join(f"{name}:{end}" for name, end in zip(self.fields, ends, strict=True))


@dataclass(slots=True)
class ParseReport:
    """What could not be read of an answer: records dropped, and whether its end is missing."""

    dropped: int = 0
    cut: bool = False

    @property
    def complete(self) -> bool:
        return not self.dropped and not self.cut


def split_records(text: str, frame: RecordFormat, tally: ParseReport) -> Iterator[str]:
    """One record after the other: a hundred thousand of them, taken apart, need not be in memory at once."""
    start = 0
    while (end := text.find(frame.record_end, start)) >= 0:
        yield text[start:end].removeprefix("\n")
        start = end + len(frame.record_end)
    tally.cut = tally.cut or text[start:].strip() != ""


def split_fields(record: str, frame: RecordFormat, tally: ParseReport) -> list[str] | None:
    """The fields of a record; one that has not the right count of them is dropped and counted."""
    fields = record.split(frame.field_end)
    if len(fields) == len(frame.fields):
        return fields
    tally.dropped += 1
    return None


def split_counted(text: str, width: int, token: str, tally: ParseReport) -> Iterator[list[str]]:
    """The fields of each record where every field ends with one token (sacct --parsable --delimiter)."""
    pieces = text.split(token)
    tally.cut = tally.cut or pieces[-1].strip() != "" or (len(pieces) - 1) % width != 0
    for start in range(0, len(pieces) - width, width):
        fields = pieces[start : start + width]
        fields[0] = fields[0].removeprefix("\n")
        yield fields


def decode(output: bytes) -> str:
    """Slurm's text; what is no UTF-8 becomes a mark of it rather than a fault."""
    return output.decode("utf-8", "replace")
