from datetime import UTC, datetime, timedelta

import pytest

from redbox_api.models import Job, OwnerRef, Phase
from redbox_resourced.kubelet.logs.lines import LogTimes, timestamp
from redbox_resourced.kubelet.logs.query import (
    LogRequest,
    is_empty_since,
    read_query,
    requested_attempt,
    tail_shares,
)
from redbox_resourced.kubelet.rejection import RequestRejected

START = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
END = START + timedelta(minutes=5)
NOW = START + timedelta(hours=1)


def job(phase: Phase, started: datetime | None = START, ended: datetime | None = None) -> Job:
    owner = OwnerRef(cluster="prod", namespace="alice", account="default")
    return Job(key="k", attempt=1, owner=owner, user="a", phase=phase, started_at=started, ended_at=ended)


def test_the_query_of_the_api_server_is_read_whole() -> None:
    query = {
        "follow": "true",
        "tailLines": "7",
        "sinceSeconds": "60",
        "timestamps": "true",
        "limitBytes": "9",
        "previous": "true",
        "stream": "Stderr",
    }
    since = NOW - timedelta(seconds=60)
    assert read_query(query, NOW) == LogRequest(
        streams=("stderr",),
        follow=True,
        tail_lines=7,
        since=since,
        timestamps=True,
        limit_bytes=9,
        previous=True,
    )


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-1"},
        {"tailLines": "many"},
        {"tailLines": "9" * 40},
        {"limitBytes": "1.5"},
        {"sinceTime": "yesterday"},
        {"stream": "stdin"},
    ],
)
def test_what_cannot_be_read_is_refused_by_its_name(query: dict[str, str]) -> None:
    with pytest.raises(RequestRejected, match=next(iter(query))):
        read_query(query, NOW)


@pytest.mark.parametrize(
    ("since", "row", "empty"),
    [
        (None, job(Phase.RUNNING), False),
        (START - timedelta(seconds=1), job(Phase.RUNNING), False),
        (START, job(Phase.FAILED, ended=END), False),
        (NOW, job(Phase.PENDING, started=None), False),
        (END + timedelta(seconds=1), job(Phase.SUCCEEDED, ended=END), True),
    ],
)
def test_since_is_honoured_where_no_time_of_a_line_is_needed(
    since: datetime | None, row: Job, *, empty: bool
) -> None:
    assert is_empty_since(LogRequest(since=since), LogTimes.of_job(row)) is empty


@pytest.mark.parametrize("row", [job(Phase.RUNNING), job(Phase.FAILED, ended=END)])
def test_since_is_refused_in_the_midst_of_a_job(row: Job) -> None:
    with pytest.raises(RequestRejected, match="--tail"):
        is_empty_since(LogRequest(since=START + timedelta(seconds=1)), LogTimes.of_job(row))


@pytest.mark.parametrize(
    ("row", "stamp"),
    [
        (job(Phase.RUNNING), b"2026-11-21T14:00:00.000000Z "),
        (job(Phase.FAILED, ended=END), b"2026-11-21T13:05:00.000000Z "),
    ],
)
def test_a_stamp_is_never_before_the_line_was_written(row: Job, stamp: bytes) -> None:
    assert timestamp(LogTimes.of_job(row), NOW) == stamp


@pytest.mark.parametrize(
    ("wanted", "lines", "parts"),
    [
        (10, (100, 100), (5, 5)),
        (10, (100, 2), (8, 2)),
        (10, (3, 100), (3, 7)),
        (10, (2, 3), (2, 3)),
        (1, (100, 100), (1, 0)),
        (1, (0, 5), (0, 1)),
        (5, (100, 100), (3, 2)),
        (4, (9,), (4,)),
        (4, (2,), (2,)),
    ],
)
def test_the_last_lines_are_shared_and_never_too_many(
    wanted: int, lines: tuple[int, ...], parts: tuple[int, ...]
) -> None:
    assert tail_shares(wanted, lines) == parts


def test_previous_is_the_attempt_before() -> None:
    assert requested_attempt(LogRequest(previous=True), attempt=3, run=1) == 2
    assert requested_attempt(LogRequest(), attempt=3, run=2) == 3


@pytest.mark.parametrize(("attempt", "run", "why"), [(1, 1, "no previous run"), (2, 2, "requeued")])
def test_previous_is_refused_where_nobody_has_it(attempt: int, run: int, why: str) -> None:
    with pytest.raises(RequestRejected, match=why):
        requested_attempt(LogRequest(previous=True), attempt, run)
