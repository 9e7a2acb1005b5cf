"""Times and sizes, as Slurm writes them. Pure."""

from __future__ import annotations

from datetime import datetime

MINUTE, HOUR, DAY = 60, 3600, 86400
UNITS_OF_TIME = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}
STEP = 1024
UNITS = ("M", "G", "T", "P")


def elapsed(seconds: float | None) -> str:
    """1-02:03:04, 2:03:04, 3:04."""
    if seconds is None:
        return ""
    whole = int(seconds)
    days, rest = divmod(whole, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, left = divmod(rest, MINUTE)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def roughly(seconds: float) -> str:
    """40 s, 25 min, 2 h, 3 days: as exactly as an estimate deserves."""
    for size, name in ((DAY, "days"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {name}"
    return f"{round(seconds)} s"


def clock(time: datetime | None) -> str:
    """In the user's own time zone, to the second."""
    return time.astimezone().strftime("%Y-%m-%dT%H:%M:%S") if time else ""


def limit(seconds: int | None) -> str:
    """A time limit as sinfo shows it."""
    if seconds is None:
        return "infinite"
    return elapsed(seconds)


def megabytes(count: float) -> str:
    """512M, 4G, 1.5T."""
    size, unit = float(count), 0
    while size >= STEP and unit < len(UNITS) - 1:
        size, unit = size / STEP, unit + 1
    return f"{size:.1f}".rstrip("0").rstrip(".") + UNITS[unit]
