"""A pod's report as a real agent reads it: the last whole line, and nothing but files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redbox.agents.agent import AgentClient
from redbox.core.workload_manager import ReportPiece, ReportPosition
from redbox.slurm.submit.pod_reports import MOST_BYTES, read_report
from redbox_api.pod_report import LONGEST_REPORT


class Report:
    """A report file, and how far it was read."""

    def __init__(self, agent: AgentClient, path: Path) -> None:
        self.agent = agent
        self.path = path
        self.position: ReportPosition | None = None

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    async def read(self) -> ReportPiece:
        piece = await read_report(self.agent, str(self.path), self.position)
        self.position = piece.position
        return piece

    async def line(self) -> bytes:
        return (await self.read()).line


@pytest.fixture
def report(agent: AgentClient, folder: Path) -> Report:
    return Report(agent, folder / "report.jsonl")


async def test_the_last_whole_line_counts_and_is_read_once(report: Report) -> None:
    report.append(b"one\ntwo\nthr")
    assert await report.line() == b"two"
    assert await report.line() == b""
    report.append(b"ee\n")
    assert await report.line() == b"three"
    assert await report.line() == b""


async def test_a_file_that_was_replaced_or_begun_again_is_read_from_its_end(report: Report) -> None:
    report.append(b"one\ntwo\n")
    await report.read()
    new = report.path.with_name("new")
    new.write_bytes(b"three\n")
    new.rename(report.path)
    assert await report.line() == b"three"
    report.path.write_bytes(b"4\n")
    assert await report.line() == b"4"


async def test_of_a_file_that_grew_by_much_only_the_end_is_read(report: Report) -> None:
    report.append(b"one\n")
    await report.read()
    longest = b"x" * LONGEST_REPORT
    report.append(b"y" * 3 * MOST_BYTES + b"\n" + longest + b"\n" + longest)
    assert await report.line() == longest


async def test_a_line_of_ten_megabytes_is_no_line_but_the_next_one_is(report: Report) -> None:
    report.append(b"x" * 10_000_000)
    assert await report.line() == b""
    report.append(b"x\n")
    assert len(await report.line()) <= MOST_BYTES
    report.append(b"next\n")
    assert await report.line() == b"next"


async def test_a_line_whose_bytes_are_not_here_yet_is_read_again(report: Report) -> None:
    report.append(b'{"a": 1}\n{"\0\0\0\0\n')
    piece = await report.read()
    assert (piece.line, piece.unclear) == (b"", True)
    report.path.write_bytes(b'{"a": 1}\n{"b":2}\n')
    assert await report.line() == b'{"b":2}'


@pytest.mark.parametrize(
    "kind", ["missing", "folder", "fifo", "link to a device", "link to itself", "denied"]
)
async def test_what_is_no_file_has_no_report_and_nothing_waits_for_it(report: Report, kind: str) -> None:
    path = report.path
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "denied":
        path.touch(mode=0o000)
    assert await report.read() == ReportPiece(b"", None)


async def test_a_link_leads_to_what_its_user_may_read(report: Report) -> None:
    other = report.path.with_name("other")
    other.write_bytes(b"mine\n")
    report.path.symlink_to(other)
    assert await report.line() == b"mine"
