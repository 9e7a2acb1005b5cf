"""What `kubectl logs` may ask, and what of it can be honoured for the output files of a Slurm job. Pure.

The files carry no times. `--since` is honoured where it does not need them: from before the job's start it is
the whole log, after its end it is nothing, and between the two it is refused with a sentence. `--timestamps`
says when a line was read here, or when the job ended if that was before: no line was written later than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Literal

from redbox_api.models import FINAL_PHASES, Job

Stream = Literal["stdout", "stderr"]
STREAMS: dict[str, tuple[Stream, ...]] = {
    "": ("stdout", "stderr"),
    "All": ("stdout", "stderr"),
    "Stdout": ("stdout",),
    "Stderr": ("stderr",),
}
MOST_LINES = 1_000_000


class LogRequestRejected(Exception):
    """It cannot be answered truthfully; the message says why, and what to ask instead."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class LogRequest:
    """One reader's wish."""

    streams: tuple[Stream, ...] = STREAMS[""]
    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None
    previous: bool = False


def read_query(query: Mapping[str, str], now: datetime) -> LogRequest:
    """As the API server passes it on."""
    if query.get("stream", "") not in STREAMS:
        raise LogRequestRejected(f"stream is one of All, Stdout and Stderr, not {query['stream'][:64]!r}")
    return LogRequest(
        streams=STREAMS[query.get("stream", "")],
        follow=_flag(query, "follow"),
        tail_lines=_number(query, "tailLines"),
        since=_since(query, now),
        timestamps=_flag(query, "timestamps"),
        limit_bytes=_number(query, "limitBytes"),
        previous=_flag(query, "previous"),
    )


def requested_attempt(request: LogRequest, attempt: int, run: int) -> int:
    """Which attempt's log it is; the one before, where `--previous` is asked."""
    if not request.previous:
        return attempt
    if run > 1:
        raise LogRequestRejected(
            f"Slurm requeued this job: it is in run {run}, and writes to the same output file as the run "
            "before. With --open-mode=append among the job's options its log has all runs (no --previous)."
        )
    if attempt == 1:
        raise LogRequestRejected(
            "there is no previous run: this is the job's first attempt, and it was not requeued"
        )
    return attempt - 1


def is_empty_since(request: LogRequest, job: Job) -> bool:
    """Whether nothing was written since then; NotHonoured where only times of lines could tell."""
    since = request.since
    if since is None or job.started_at is None or since <= job.started_at:
        return False
    if job.phase in FINAL_PHASES and job.ended_at is not None and since > job.ended_at:
        return True
    raise LogRequestRejected(
        "a Slurm job's output has no times of its lines, so --since and --since-time can be honoured only "
        f"for a time before the job's start ({_said(job.started_at)}) or after its end: use --tail"
    )


def timestamp(job: Job, now: datetime) -> bytes:
    """The latest time at which a line that is read now can have been written."""
    ended = job.ended_at if job.phase in FINAL_PHASES else None
    moment = min(now, ended) if ended else now
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()


def without_last_line(request: LogRequest) -> LogRequest:
    """Of the lines asked for, all but the last, which is one of our own."""
    if not request.tail_lines or "stderr" not in request.streams:
        return request
    return replace(request, tail_lines=request.tail_lines - 1)


def tail_shares(wanted: int, lines: tuple[int, ...]) -> tuple[int, ...]:
    """How many of the last lines come from each stream, where the files do not tell which came last.

    Each stream has an equal share; what one does not need, the other gets.
    """
    if len(lines) == 1:
        return (min(wanted, lines[0]),)
    out, err = lines
    of_err = min(err, max(wanted // 2, wanted - out))
    return min(out, wanted - of_err), of_err


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in {"true", "1"}


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > len(str(1 << 63)):
        raise LogRequestRejected(f"{name} is a number that is not negative, not {text[:64]!r}")
    return int(text)


def _since(query: Mapping[str, str], now: datetime) -> datetime | None:
    seconds = _number(query, "sinceSeconds")
    if seconds is not None:
        return now - timedelta(seconds=min(seconds, 10**9))
    text = query.get("sinceTime", "")
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LogRequestRejected(f"sinceTime is a time as 2026-11-21T13:00:00Z, not {text[:64]!r}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _said(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
