"""Counts fsync and fdatasync of the bed's processes, by the kernel's own trace points: no process is slowed.

The trace has an instance of its own, which is removed in the end, in a mount of its own.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redbox_bed.bed import Bed
from tests.bench.processor_time import named_processes

CALLS = ("sys_enter_fsync", "sys_enter_fdatasync")
INSTANCE = "instances/redbox-bench"
BUFFER_KB = 8192
LINE = re.compile(r"^\s*\S.*-(\d+)\s+\[\d+\] .*: sys_f(?:data)?sync\(", re.MULTILINE)
LOST = re.compile(r"^overrun: (\d+)", re.MULTILINE)


class SyncCounter:
    """Counts since `start`."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self._bed = bed
        self._folder = folder

    def start(self) -> None:
        (self._folder / "trace").write_text("")

    def counts(self) -> Counter[str]:
        """By name, as in the account of CPU time; threads that have ended since are left out."""
        lost = sum(
            int(found)
            for file in self._folder.glob("per_cpu/*/stats")
            for found in LOST.findall(file.read_text())
        )
        if lost:
            raise RuntimeError(f"the trace of fsyncs lost {lost} of them")
        calls = Counter(int(thread) for thread in LINE.findall((self._folder / "trace").read_text()))
        counts: Counter[str] = Counter()
        for _, name, pid in named_processes(self._bed):
            threads = [int(task.name) for task in Path(f"/proc/{pid}/task").glob("*")]
            counts[name] += sum(calls[thread] for thread in threads)
        return counts


@contextmanager
def counting_syncs(bed: Bed) -> Iterator[SyncCounter | None]:
    """None on a machine that lets nobody mount its trace points."""
    with tempfile.TemporaryDirectory(prefix="redbox-bench-trace-") as mount:
        mounting = ["mount", "-t", "tracefs", "tracefs", mount]
        if subprocess.run(mounting, check=False, capture_output=True, timeout=20).returncode:
            yield None
            return
        instance = Path(mount) / INSTANCE
        try:
            instance.mkdir(exist_ok=True)  # of one that was killed
            (instance / "buffer_size_kb").write_text(str(BUFFER_KB))
            for call in CALLS:
                (instance / "events/syscalls" / call / "enable").write_text("1")
            yield SyncCounter(bed, instance)
        finally:
            if instance.exists():
                (instance / "events/enable").write_text("0")
                instance.rmdir()
            subprocess.run(["umount", mount], check=True, capture_output=True, timeout=20)
