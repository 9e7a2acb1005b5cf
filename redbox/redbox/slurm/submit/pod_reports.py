"""The report of a pod's runner: the file that it appends a line to for each change, read as the pod's user.

Only bytes that were not read before travel, and of a file that has grown by much only its end: each line is
the whole report. The agent opens regular files alone and never waits for a FIFO; a symbolic link leads to
what the user may read anyway.
"""

from __future__ import annotations

from redbox.agents.agent import AgentClient
from redbox.agents.errors import RequestFailed, SystemCallFailed
from redbox.agents.protocol.answers import ReadPrecondition, ReadResult
from redbox.core.workload_manager import ReportPiece, ReportPosition
from redbox_api.pod_report import LONGEST_REPORT

FILE = "report.jsonl"
MOST_BYTES = 2 * LONGEST_REPORT + 2  # a whole line, behind which another one is half written
READ_S = 5.0
NOTHING = ReportPiece(b"", None)


async def read_report(agent: AgentClient, path: str, since: ReportPosition | None) -> ReportPiece:
    """The last whole line after this position; what is missing or not a regular file has none."""
    try:
        if since is not None:
            expect = ReadPrecondition(since.device, since.inode, since.tail)
            found = await _read(agent, path, since.offset, expect)
            if found.same and found.offset + len(found.data) >= found.facts.size:
                return last_line(found)
        return last_line(await _read(agent, path, -MOST_BYTES))
    except SystemCallFailed as fault:
        if fault.is_passing:
            raise
        return NOTHING
    except RequestFailed:
        return NOTHING


async def _read(
    agent: AgentClient, path: str, offset: int, expect: ReadPrecondition | None = None
) -> ReadResult:
    return await agent.read(path, offset=offset, limit=MOST_BYTES, expect=expect, tail=True, deadline=READ_S)


def last_line(found: ReadResult) -> ReportPiece:
    """The last whole line of these bytes, and the position behind it. Pure.

    NULs are bytes that a network file system does not show yet: the line is read again. A line without an end
    in sight is skipped, and what follows of it is not a report.
    """
    facts = found.facts
    end = found.data.rfind(b"\n") + 1
    line = found.data[:end].rstrip(b"\n").rpartition(b"\n")[2]
    unclear = b"\0" in line
    if unclear or (not end and len(found.data) < MOST_BYTES):
        end, line = 0, b""
    elif not end:
        end = len(found.data)
    tail = found.tail if end == len(found.data) else ""
    return ReportPiece(line, ReportPosition(facts.device, facts.inode, found.offset + end, tail), unclear)
