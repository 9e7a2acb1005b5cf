"""Records of fixed length, whose fields are found by position: no text in one can end it, or begin another.

So sacct prints them without --parsable: each field padded with blanks, or cut with a + as its last byte, to
the width in bytes that the format names, and followed by a blank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from redbox.slurm.text.record_format import ParseReport, decode

CUT = b"+"


@dataclass(frozen=True, slots=True)
class Field:
    """The text of a field, as much of it as its column holds."""

    text: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """Fields and the widths of their columns."""

    widths: Mapping[str, int]

    def format(self) -> str:
        """The argument of --format, aligned to the left."""
        return ",".join(f"{name}%-{width}" for name, width in self.widths.items())

    def read(self, output: bytes, report: ParseReport) -> Iterator[dict[str, Field]]:
        length = sum(width + 1 for width in self.widths.values()) + 1
        for start in range(0, len(output), length):
            record = output[start : start + length]
            if len(record) < length or not record.endswith(b" \n"):
                report.cut = True
                return
            yield dict(self._fields(record))

    def _fields(self, record: bytes) -> Iterator[tuple[str, Field]]:
        begin = 0
        for name, width in self.widths.items():
            text = record[begin : begin + width]
            is_cut = text.endswith(CUT)
            yield name, Field(decode(text.removesuffix(CUT) if is_cut else text.rstrip(b" ")), is_cut)
            begin += width + 1
