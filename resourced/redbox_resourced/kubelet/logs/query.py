"""The options of `kubectl logs`, and which of them the output files of a Slurm job support. Pure.

The files contain no times. `--since` works where it needs none: a time before the job's start selects the
whole log, one after its end selects nothing. One between is rejected for a SlurmJob; for a container it
selects what `time_index` knows to be enough. `--timestamps` is the time at which a line was read here, or the
job's end if that is earlier: no line was written later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from redbox_resourced.kubelet.logs.lines import LogTimes
from redbox_resourced.kubelet.rejection import RequestRejected

Stream = Literal["stdout", "stderr"]
BOTH: tuple[Stream, ...] = ("stdout", "stderr")
STREAMS: dict[str, tuple[Stream, ...]] = {"All": BOTH, "Stdout": ("stdout",), "Stderr": ("stderr",)}
MOST_LINES = 1_000_000


@dataclass(frozen=True)
class LogRequest:
    """The query of one reader."""

    streams: tuple[Stream, ...] = BOTH
    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None
    previous: bool = False


def read_query(query: Mapping[str, str], now: datetime) -> LogRequest:
    stream = query.get("stream") or "All"
    if stream not in STREAMS:
        raise RequestRejected(f"stream must be one of All, Stdout and Stderr, not {stream[:64]!r}")
    return LogRequest(
        streams=STREAMS[stream],
        follow=_flag(query, "follow"),
        tail_lines=_number(query, "tailLines"),
        since=_since(query, now),
        timestamps=_flag(query, "timestamps"),
        limit_bytes=_number(query, "limitBytes"),
        previous=_flag(query, "previous"),
    )


def requested_attempt(request: LogRequest, attempt: int, run: int) -> int:
    """The pod's own attempt, or with `--previous` the one before."""
    if not request.previous:
        return attempt
    if run > 1:
        raise RequestRejected(
            f"Slurm requeued this job: it is in run {run}, and writes to the same output file as the run "
            "before. With --open-mode=append among the job's options its log has all runs (no --previous)."
        )
    if attempt == 1:
        raise RequestRejected(
            "there is no previous run: this is the job's first attempt, and it was not requeued"
        )
    return attempt - 1


def ends_before(request: LogRequest, times: LogTimes) -> bool:
    """Whether the last line is older than what is requested."""
    return request.since is not None and times.ended_at is not None and request.since > times.ended_at


def is_empty_since(request: LogRequest, times: LogTimes) -> bool:
    """Whether no line is newer; raises RequestRejected where that depends on the times of lines."""
    since = request.since
    if since is None or times.started_at is None or since <= times.started_at:
        return False
    if ends_before(request, times):
        return True
    start = times.started_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    raise RequestRejected(
        "a Slurm job's output has no times of its lines, so --since and --since-time work only "
        f"for a time before its start ({start}) or after its end: use --tail"
    )


def without_last_line(request: LogRequest) -> LogRequest:
    """One line less: the last one is our own."""
    if not request.tail_lines or "stderr" not in request.streams:
        return request
    return replace(request, tail_lines=request.tail_lines - 1)


def tail_shares(wanted: int, counts: tuple[int, ...]) -> tuple[int, ...]:
    """How many of the last lines come from each stream: the files do not show the order between the two.

    Each stream has an equal share; lines that one does not need go to the other.
    """
    if len(counts) == 1:
        return (min(wanted, counts[0]),)
    out, err = counts
    err_share = min(err, max(wanted // 2, wanted - out))
    return min(out, wanted - err_share), err_share


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in {"true", "1"}


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > len(str(1 << 63)):
        raise RequestRejected(f"{name} must be a number that is not negative, not {text[:64]!r}")
    return int(text)


def _since(query: Mapping[str, str], now: datetime) -> datetime | None:
    seconds = _number(query, "sinceSeconds")
    if seconds is not None:
        return now - timedelta(seconds=min(seconds, 10**9))
    text = query.get("sinceTime", "")
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise RequestRejected(
            f"sinceTime must be a time as 2026-11-21T13:00:00Z, not {text[:64]!r}"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
