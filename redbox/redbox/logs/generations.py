"""Distinguishing the file of one run from that of the next.

A requeued job truncates its file or creates a new one, and then may write the same bytes. So a file's
*generation* is its location (device and inode) and the run of the job that wrote it; and each read compares
a hash of the last 4 KiB before its offset, since a truncated file may have grown past the offset again. Slurm
counts a run long before that run opens its file: a file not modified since then belongs to an earlier run.
Readers carry generations as opaque text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from redbox.logs.interfaces import FileChunk, LogFileStat, OutputState

TAIL_BYTES = 4096
PAGE_BYTES = 4096
CLOCK_SKEW_S = 60.0  # between slurmctld and a file server; Slurm waits two minutes before the next run


@dataclass(frozen=True, slots=True)
class Generation:
    """The file of one run."""

    device: int
    inode: int
    run: int
    cuts: int = 0  # observed truncations within the run

    def cut(self, reader_cuts: int = 0) -> Generation:
        """Return the generation after one more truncation than any reader or this one has counted."""
        return replace(self, cuts=max(self.cuts, reader_cuts) + 1)

    def continues_in(self, current: Generation) -> bool:
        """Whether a reader of this generation may continue in the current one.

        A restarted server counts truncations from 0, so a reader may have counted more than the server.
        """
        return replace(self, cuts=current.cuts) == current and self.cuts >= current.cuts

    def __str__(self) -> str:
        return f"{self.device:x}-{self.inode:x}-{self.run}-{self.cuts}"


def tail_hash(before: bytes) -> str:
    """Hash the last bytes before an offset; the agent computes the same from the file."""
    return hashlib.sha256(before[-TAIL_BYTES:]).hexdigest() if before else ""


def parse_generation(text: str) -> Generation | None:
    try:
        device, inode, run, cuts = text.split("-")
        return Generation(int(device, 16), int(inode, 16), int(run), int(cuts))
    except ValueError:
        return None


def run_of(
    stat: LogFileStat,
    output: OutputState,
    old: Generation | None,
    old_stat: LogFileStat | None,
    cut_ns: int | None,
) -> int:
    """Return the run that wrote the file: the newest, once the file was modified since an earlier one.

    Slurm shows a run as started before the file is opened for it (a prolog, a slow launch), and a run that is
    cancelled while it waits never opens it. A truncation may also be observed (`cut_ns`) before Slurm shows
    the run that caused it.
    """
    began_ns = None if output.began is None else int((output.began - CLOCK_SKEW_S) * 1e9)
    if old is None or old_stat is None or (stat.device, stat.inode) != (old.device, old.inode):
        is_older = began_ns is not None and stat.modified_ns <= began_ns
        return output.run - 1 if is_older else output.run
    is_older = stat.modified_ns <= max(old_stat.modified_ns, began_ns or 0)
    is_newest_already = began_ns is not None and cut_ns is not None and cut_ns > began_ns
    return old.run if is_older or is_newest_already else output.run


def next_generation(
    old: Generation | None, chunk: FileChunk, run: int, offset: int, reader_cuts: int = 0
) -> Generation:
    """Return the generation of a chunk that was read at `offset`: the old one, or a new one."""
    stat = chunk.stat
    if old is None or (old.device, old.inode, old.run) != (stat.device, stat.inode, run):
        return Generation(stat.device, stat.inode, run)
    return old.cut(reader_cuts) if chunk.replaced or stat.size < offset else old


def visible_length(data: bytes, *, nul_since: float | None, now: float, nul_hold_s: float) -> int:
    """Return how many of the newest bytes to show: NULs at their end may be a hole that the next write fills.

    Network file systems show a file's new size before its new bytes, and the gap reads as NUL. So trailing
    NULs are held back until other bytes follow, or until they have stayed for `nul_hold_s` and are real.
    """
    if nul_hold_s <= 0 or (nul_since is not None and now - nul_since >= nul_hold_s):
        return len(data)
    return len(data.rstrip(b"\0"))


def hole_before_page_end(data: bytes, offset: int) -> int | None:
    """Return where NULs begin that reach the end of a page and are followed by other bytes, or None.

    They may be a page that was read before its bytes arrived, beside one that was read after.
    """
    end = len(data.rstrip(b"\0"))
    for boundary in range(PAGE_BYTES - offset % PAGE_BYTES, end, PAGE_BYTES):
        if data[boundary - 1] == 0:
            return len(data[:boundary].rstrip(b"\0"))
    return None
