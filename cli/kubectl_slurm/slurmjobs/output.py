"""A job's output: its pod's log, from the start, as a whole, across broken connections and attempts.

The API server gives no position in a log. So after a break it is read from the start, and what was already
written is left out: the log of a job's pod only grows. But a kubelet rotates it, and shows what it still has:
then the log begins otherwise, and the place is found by the last bytes that were written.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO
from urllib.parse import urlencode

from kubectl_slurm.errors import JobTrouble, NotAnswered, NotPermitted, ObjectNotFound, Refusal
from kubectl_slurm.kubectl.program import ErrorLines, Kubectl
from kubectl_slurm.kubectl.refusals import refusal_of
from kubectl_slurm.slurmjobs.access import MOST_REFUSALS, get_again
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.terminal.screen import note
from redbox_shared.own_lines import PREFIX

CHUNK = 65536
COMPARED = 4096
"""So many bytes of the beginning, and of what was written last, are kept."""
ROTATED = (
    "The log of {0} begins otherwise than before its connection broke, as after a rotation: some of it may "
    "be missing here, or come twice. All of it is in the job's file on the Slurm cluster."
)
NOT_SPLIT = "stream: Forbidden"
"""From an API server that cannot tell the streams of a pod apart."""
NOT_YET = (
    "ContainerCreating",
    "PodInitializing",
    "is waiting to start",
    "not have a host assigned",
    "not found",
)
"""Why a pod has no log yet."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
MOST_SILENCES = 120
STREAMS = {"stdout": "Stdout", "stderr": "Stderr"}
HEADING = re.compile(rf"^{re.escape(PREFIX)}task ([0-9]+): ".encode())
LONGEST_HEADING = 64
"""Bytes by which a line is known for a heading, or for none."""
Write = Callable[[bytes], None]


class TaskFilter:
    """Passes the output of one task of an array: its heading and what follows, up to the next heading.

    Of a line only the beginning is held back: a task may write gigabytes without a newline.
    """

    def __init__(self, task: int, write: Write) -> None:
        self._task = task
        self._write = write
        self._passes = self._passes_line = self._is_mid_line = False
        self._begun = b""
        self.found = False

    def __call__(self, data: bytes) -> None:
        start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            self._take(data[start:end])
            start = end

    def finish(self) -> None:
        if self._begun:
            self._begin_line()

    def _take(self, piece: bytes) -> None:
        """All of a line, or a part of it."""
        is_end = piece.endswith(b"\n")
        if self._is_mid_line:
            if self._passes_line:
                self._write(piece)
        else:
            self._begun += piece
            if not is_end and len(self._begun) < LONGEST_HEADING:
                return
            self._begin_line()
        self._is_mid_line = not is_end

    def _begin_line(self) -> None:
        begun, self._begun = self._begun, b""
        heading = HEADING.match(begun)
        if heading:
            self._passes = int(heading[1]) == self._task
            self.found = self.found or self._passes
        self._passes_line = self._passes and not heading
        if self._passes_line:
            self._write(begun)


def write_stdout(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class PodOutput:
    """The output of one pod, of which a part is written already."""

    def __init__(
        self,
        kubectl: Kubectl,
        job: SlurmJobView,
        write: Write,
        *,
        stream: str = "",
        part: Mapping[str, int] | None = None,
    ) -> None:
        """`part` are parameters of the API, tailLines and sinceSeconds, for a log that is not followed."""
        self._kubectl = kubectl
        self._job = job
        self._write = write
        self._stream = stream
        self._part = part or {}
        self._written = 0
        self._beginning = self._last = b""

    def copy(self, *, follow: bool) -> str:
        """Write what is new; returns why it ended early, and nothing where the log was read to its end."""
        with self._reading(follow=follow) as (process, errors):
            source = process.stdout
            is_rotated = source is not None and not self._copy_new(source)
            code = 0 if is_rotated else process.wait()
        if is_rotated:
            return self._find_place() or self.copy(follow=follow)
        return errors.text() if code else ""

    def _find_place(self) -> str:
        """In the log as it begins now; returns why it cannot be read."""
        with self._reading(follow=False) as (process, errors):
            beginning, end = _beginning_and_end_of(self._last, process.stdout)
            code = process.wait()
        if code:
            return errors.text()
        self._written = _overlap(self._last, beginning) if end is None else end
        self._beginning = beginning[: min(COMPARED, self._written)]
        if not self._written:
            note(ROTATED.format(self._job.name))
        return ""

    def _reading(
        self, *, follow: bool
    ) -> contextlib.AbstractContextManager[tuple[subprocess.Popen[bytes], ErrorLines]]:
        query: dict[str, object] = {"follow": "true"} if follow else {**self._part}
        if self._stream:
            query["stream"] = STREAMS[self._stream]
        path = f"/api/v1/namespaces/{self._job.namespace}/pods/{self._job.pod}/log?{urlencode(query)}"
        return self._kubectl.process("get", "--raw", path)

    def _copy_new(self, source: IO[bytes]) -> bool:
        """False where the log does not begin as before: it was rotated."""
        skip, position = self._written, 0
        while data := os.read(source.fileno(), CHUNK):
            compared = self._beginning[position : position + len(data)]
            if data[: len(compared)] != compared:
                return False
            position += len(data)
            new, skip = data[skip:], max(0, skip - len(data))
            if new:
                self._write(new)
                self._written += len(new)
                self._beginning += new[: COMPARED - len(self._beginning)]
                self._last = (self._last + new)[-COMPARED:]
        return True


def _beginning_and_end_of(last: bytes, source: IO[bytes] | None) -> tuple[bytes, int | None]:
    """The log's first bytes, and where in it these end; read piece by piece: it may be of gigabytes."""
    beginning, window, position, end = b"", b"", 0, None
    while source is not None and (data := os.read(source.fileno(), CHUNK)):
        beginning += data[: COMPARED - len(beginning)]
        window = window[-len(last) :] + data
        position += len(data)
        if end is None and (at := window.find(last)) >= 0:
            end = position - len(window) + at + len(last)
    return beginning, end


def _overlap(last: bytes, log: bytes) -> int:
    """How much of the log's beginning is the end of what was written last."""
    return next((size for size in range(len(last), 0, -1) if log.startswith(last[-size:])), 0)


class PatientReader:
    """Reads a SlurmJob again; while the API server is away it is as it was."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self._failures = 0

    def __call__(self, job: SlurmJobView) -> SlurmJobView:
        try:
            current = get_again(self._kubectl, job)
        except ObjectNotFound as gone:
            raise JobTrouble(f"{job.name} was deleted, and its job cancelled") from gone
        except Refusal as refusal:
            if self._failures >= (MOST_SILENCES if isinstance(refusal, NotAnswered) else MOST_REFUSALS):
                raise
            if not self._failures:
                note(f"{refusal}; trying again, the job is not affected")
            self._failures += 1
            return job
        self._failures = 0
        return current


def print_output(
    kubectl: Kubectl,
    job: SlurmJobView,
    write: Write,
    *,
    stream: str = "",
    part: Mapping[str, int] | None = None,
) -> None:
    """What there is now; of a job that has ended all of it, which its companion may still be relaying."""
    output = PodOutput(kubectl, job, write, stream=stream, part=part)
    if why := output.copy(follow=job.finished and not part):
        raise _no_log(why, job, kubectl)


def follow_output(
    kubectl: Kubectl, job: SlurmJobView, write: Write, *, stream: str = "", since: int | None = None
) -> SlurmJobView:
    """Write the output until the job has ended; returns it as it is then. Later attempts follow.

    `since` is the first attempt whose output is written: one that failed at once was never seen running.
    """

    def write_ended(first: int, current: SlurmJobView) -> None:
        for number in range(first, current.attempt):
            PodOutput(kubectl, current.as_of_attempt(number), write, stream=stream).copy(follow=False)

    pause, read_again, denials = FIRST_PAUSE_S, PatientReader(kubectl), 0
    write_ended(since or job.attempt, job)
    output = PodOutput(kubectl, job, write, stream=stream)
    while True:
        why = output.copy(follow=True)
        denial = refusal_of(why, kubectl.namespace_option) if why else None
        denials = denials + 1 if isinstance(denial, NotPermitted) else 0
        if denial and denials > MOST_REFUSALS:
            raise denial
        current = read_again(job)
        if current.attempt != job.attempt:
            write_ended(job.attempt + 1, current)  # ended since the last read
            output, pause = PodOutput(kubectl, current, write, stream=stream), FIRST_PAUSE_S
        elif current.finished and not why:
            return current
        elif why and not any(sign in why for sign in NOT_YET) and current.finished:
            raise _no_log(why, current, kubectl)
        job = current
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_S)
        if current.finished and why and pause >= LONGEST_PAUSE_S:
            raise _no_log(why, current, kubectl)


def _no_log(why: str, job: SlurmJobView, kubectl: Kubectl) -> Refusal:
    if any(sign in why for sign in NOT_YET):
        where = f"it is {job.phase}" + (f" ({job.reason})" if job.reason else "")
        return Refusal(
            f"{job.name} has no output yet: {where}. `kubectl slurm logs -f {job.name}` waits for it"
        )
    return refusal_of(why, kubectl.namespace_option)
