"""Telling one run's file from the next.

A requeued job truncates its file or makes a new one, and then writes what may be the same bytes. So a file's
*generation* is where it is (device and inode) and which run of the job wrote it; and each look compares a
hash of the last 4 KiB that were read, since a truncated file may have grown past them again. Slurm counts a
run long before that run opens its file: one that nobody has touched since is still an earlier run's. Readers
carry generations as opaque text.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from redbox.logs.interfaces import Facts, Piece, Written

TAIL_BYTES = 4096
PAGE_BYTES = 4096
CLOCKS_APART_S = 60.0  # slurmctld's and a file server's; Slurm lets two minutes pass before a next run


@dataclass(frozen=True, slots=True)
class Generation:
    """One run's file."""

    device: int
    inode: int
    run: int
    cuts: int = 0  # how often this file was seen to be truncated within the run

    def cut(self, known_cuts: int = 0) -> Generation:
        """The same file after it was truncated once more than anybody knows."""
        return replace(self, cuts=max(self.cuts, known_cuts) + 1)

    def is_now(self, current: Generation) -> bool:
        """Whether a reader in this one may go on in the current one.

        A server that was restarted begins to count cuts anew, so a reader may know of more than it does.
        """
        return replace(self, cuts=current.cuts) == current and self.cuts >= current.cuts

    def __str__(self) -> str:
        return f"{self.device:x}-{self.inode:x}-{self.run}-{self.cuts}"


def tail_hash(before: bytes) -> str:
    """Of the bytes that end at an offset; the agent makes the same of what is in the file."""
    return hashlib.sha256(before[-TAIL_BYTES:]).hexdigest() if before else ""


def resumed(text: str) -> Generation | None:
    """What a reader came back with; nonsense is no generation."""
    parts = text.split("-")
    try:
        device, inode, run, cuts = int(parts[0], 16), int(parts[1], 16), int(parts[2]), int(parts[3])
    except (ValueError, IndexError):
        return None
    return Generation(device, inode, run, cuts)


def run_of(
    facts: Facts, written: Written, known: Generation | None, last: Facts | None, cut_ns: int | None
) -> int:
    """Which run wrote what is in the file: the newest, once the file was modified since an earlier one's.

    Slurm shows a run at work before the file is opened for it (a prolog, a slow launch), and one that is
    cancelled while it waits never opens it. A cut may also be seen (`cut_ns`) before Slurm shows the run that
    made it.
    """
    began_ns = None if written.began is None else int((written.began - CLOCKS_APART_S) * 1e9)
    modified_ns = facts.modified_ns
    if known is None or last is None or (facts.device, facts.inode) != (known.device, known.inode):
        is_older = began_ns is not None and modified_ns <= began_ns
        return written.run - 1 if is_older else written.run
    is_older = modified_ns <= max(last.modified_ns, began_ns or 0)
    is_newest_already = began_ns is not None and cut_ns is not None and cut_ns > began_ns
    return known.run if is_older or is_newest_already else written.run


def follows(known: Generation | None, piece: Piece, run: int, offset: int, known_cuts: int = 0) -> Generation:
    """The generation of what was just read at `offset`: the known one, or a new one."""
    facts = piece.facts
    if known is None or (known.device, known.inode, known.run) != (facts.device, facts.inode, run):
        return Generation(facts.device, facts.inode, run)
    return known.cut(known_cuts) if piece.another or facts.size < offset else known


def shown_length(data: bytes, *, nul_since: float | None, now: float, patience: float) -> int:
    """How much of the newest bytes to show: NULs at their end may be a hole that the next write fills.

    Network file systems show a file's new size before its new bytes, and the gap reads as NUL. So NULs are
    held back until other bytes follow, or `patience` seconds have passed: then they are real.
    """
    if patience <= 0 or (nul_since is not None and now - nul_since >= patience):
        return len(data)
    return len(data.rstrip(b"\0"))


def doubtful_hole(data: bytes, offset: int) -> int | None:
    """Where in the data at `offset` NULs begin that reach the end of a page, with other bytes behind them.

    They may be a page that was read before its bytes were there, beside one that was read after.
    """
    end = len(data.rstrip(b"\0"))
    for boundary in range(PAGE_BYTES - offset % PAGE_BYTES, end, PAGE_BYTES):
        if data[boundary - 1] == 0:
            return len(data[:boundary].rstrip(b"\0"))
    return None
