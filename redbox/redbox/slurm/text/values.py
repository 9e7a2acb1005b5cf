"""Values in Slurm's fields: times, durations, numbers, and its words for an empty value. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from redbox_shared.sbatch_options import read_duration

EMPTY = frozenset(
    {"", "(null)", "N/A", "n/a", "None", "none", "Unknown", "NONE", "UNLIMITED", "INVALID", "None assigned"}
)
# Bounded: a user's own agent may answer anything, and Python converts no number of more than 4,300 digits.
NUMBER = re.compile(r"[0-9]{1,18}")
UNITS = ("", "K", "M", "G", "T", "P")
SIZE = re.compile(r"(?P<number>[0-9]{1,20}(?:\.[0-9]{1,6})?)(?P<unit>[KMGTP]?)")
TIME_FORMAT = {"SLURM_TIME_FORMAT": "%s"}
"""Seconds since 1970: the only form of Slurm's times that does not depend on a time zone."""


def text_or_none(text: str) -> str | None:
    return None if text in EMPTY else text


def read_time(text: str) -> datetime | None:
    """Seconds since 1970; None for each of Slurm's words for an empty time."""
    seconds = read_number(text)
    if not seconds:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def read_number(text: str) -> int | None:
    """A plain number; None for UNLIMITED and every other text."""
    return int(text) if NUMBER.fullmatch(text) else None


def read_cpu_time(text: str) -> float | None:
    """Seconds of a TotalCPU: a duration which, below an hour, has a fraction. None if it is neither."""
    seconds = read_duration(text)
    _, point, fraction = text.partition(".")
    return seconds if seconds is None or not point else seconds + float(f"0.{fraction}")


def read_bytes(text: str) -> int | None:
    """Bytes of `4000M`, `1.50G` or `4096`; None for every other text."""
    found = SIZE.fullmatch(text)
    return int(float(found["number"]) * 1024 ** UNITS.index(found["unit"])) if found else None


def read_tres(text: str) -> dict[str, str]:
    """The amounts of `cpu=2,mem=4000M,node=1` by their names."""
    return dict(part.partition("=")[::2] for part in text.split(","))
