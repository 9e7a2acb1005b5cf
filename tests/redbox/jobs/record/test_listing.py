"""A page of jobs is one that clients read, whatever the jobs' users have written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from redbox.jobs.record import listing
from redbox.jobs.record.api_view import job_view
from redbox.jobs.record.listing import PageRequest, page_of
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.record.pods import with_line
from redbox.jobs.record.record import JobRecord, sort_key, with_warning
from redbox.jobs.record.report_text import LONGEST_LIVE
from redbox_api.bodies import LIMITS
from redbox_api.models import Job, JobList
from redbox_api.pod_report import LONGEST_MESSAGE, LONGEST_REPORT
from tests.redbox.jobs.factories import MACHINE, RECORD

AT = "2026-01-01T00:00:00Z"
JOBS, PAGE = 500, 500
FIRST = PageRequest()
POD = replace(RECORD, is_pod=True)


def longest_report(character: str) -> bytes:
    """As long as red-box takes it."""
    message = character * min(LONGEST_MESSAGE, 8000 // len(character.encode()))
    containers = [
        {"name": f"c{n}", "state": {"waiting": {"reason": "A", "message": message}}} for n in range(128)
    ]
    while (
        len(line := json.dumps({"at": AT, "containers": containers}, ensure_ascii=False).encode())
        > LONGEST_REPORT
    ):
        containers.pop()
    return line


def page(
    records: list[JobRecord],
    request: PageRequest = FIRST,
    wanted: Callable[[RecordSummary], bool] = lambda _: True,
) -> JobList:
    """The page that begins where the request says."""
    return page_of(
        lambda after: (r for r in records if after is None or sort_key(r.key) > after),
        request,
        "e.1",
        PAGE,
        view,
        wanted=wanted,
    )


def view(record: JobRecord) -> Job:
    return job_view(record, MACHINE, epoch="e", slurm_cluster=None, stale_since=None)


@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}", "<", "{"])
def test_pages_of_hostile_reports_are_read_by_clients(character: str) -> None:
    reported = with_line(POD, longest_report(character))
    assert len(reported.pod_report.encode()) > LONGEST_LIVE / 4
    records = [replace(reported, key=replace(RECORD.key, key=f"key-{n:03}")) for n in range(JOBS)]
    keys: list[str] = []
    request: PageRequest | None = FIRST
    while request is not None:
        listed = page(records, request)
        body = listed.model_dump_json(by_alias=True, exclude_none=True).encode()
        LIMITS.check(body)
        assert len(body) < LIMITS.longest / 2
        keys += [job.key for job in listed.items]
        request = PageRequest(token=listed.next) if listed.next else None
    assert keys == [record.key.key for record in records]


@pytest.mark.parametrize("character", ["x", "\1", "\N{GRINNING FACE}"])
def test_pages_of_hostile_words_of_commands_are_read_by_clients(character: str) -> None:
    """What scancel says comes from the user's own agent."""
    told = RECORD
    for number in range(20):
        told = with_warning(told, f"{number} {character * 1_000_000}")
    status = replace(told.status, name=character * 50_000, working_directory="/" + character * 50_000)
    told = replace(told, status=status)
    records = [replace(told, key=replace(RECORD.key, key=f"key-{n:03}")) for n in range(JOBS)]
    listed = page(records)
    assert len(listed.model_dump_json(by_alias=True, exclude_none=True).encode()) < LIMITS.longest / 2
    assert len(listed.items[0].warnings) == 8


def test_a_page_of_small_reports_is_full() -> None:
    line = json.dumps({"at": AT, "containers": [{"name": "c"}]}).encode()
    records = [replace(with_line(POD, line), key=replace(RECORD.key, key=f"key-{n:03}")) for n in range(JOBS)]
    assert len(page(records).items) == PAGE


def test_a_page_looks_at_a_limited_number_of_records_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "MOST_LOOKED_AT", 100)
    records = [replace(RECORD, key=replace(RECORD.key, key=f"key-{n:03}")) for n in range(250)]
    seen: list[RecordSummary] = []

    def is_last(record: RecordSummary) -> bool:
        seen.append(record)
        return record is records[-1]

    sizes: list[tuple[int, int]] = []
    request: PageRequest | None = FIRST
    while request is not None:
        listed = page(records, request, is_last)
        sizes.append((len(seen), len(listed.items)))
        request = PageRequest(token=listed.next) if listed.next else None
    assert sizes == [(100, 0), (200, 0), (250, 1)]
