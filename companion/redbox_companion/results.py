"""Bringing results: files of the job's working directory, as they were, into a folder of the pod (a volume).

Red-box sends a tar for each path or glob, which is unpacked while it comes. One that breaks off is asked for
anew. Whatever goes wrong here is told of the results, never of the job.
"""

from __future__ import annotations

import tarfile
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from redbox_companion.redbox import Answer, NoAnswer, Redbox
from redbox_companion.unpacking import Tally, Unpacking

if TYPE_CHECKING:
    from pathlib import Path

    from redbox_companion.patience import Patience
    from redbox_companion.settings import Results

COLLECTED, SKIPPED, FAILED = "Collected", "Skipped", "Failed"
BROKEN_TRIES = 6  # tars that began and broke off; then it is not the network
NAMED = 3  # of the paths that were left out
MESSAGE_CHARACTERS = 500


class NotThere(Exception):
    """There is no tar of this path or glob, and it says why."""


class BrokenOff(Exception):
    """A tar began, and did not end."""


class Outcome(NamedTuple):
    """What became of the results, as the operator reads it."""

    outcome: str
    files: int = 0
    bytes: int = 0
    message: str = ""


def skipped(wanted: Results, phase: str) -> Outcome | None:
    """Whether results are not wanted after this end of the job."""
    if wanted.when == "Always" or (wanted.when == "Succeeded") == (phase == "Succeeded"):
        return None
    return Outcome(SKIPPED, message=f"the job ended as {phase}, and results are wanted when {wanted.when}")


class Collection:
    """Tars of one job, asked for until they are whole."""

    def __init__(self, redbox: Redbox, path: str, attempt: int, patience: Patience) -> None:
        """`path` is the job's at red-box."""
        self._redbox = redbox
        self._path = f"{path}/archive"
        self._attempt = attempt
        self._patience = patience

    def collect(self, wanted: Results) -> Outcome:
        """Each glob in turn; one that finds nothing does not keep the others away."""
        unpacking = Unpacking(wanted.folder)
        tallies: list[Tally] = []
        troubles: list[str] = []
        for glob in wanted.patterns:
            try:
                tally = self._bring(glob, unpacking)
                tallies.append(tally)
                troubles += [f"{glob}: {trouble}" for trouble in _told(tally)]
            except NotThere as error:
                troubles.append(f"{glob}: {error}")
            except OSError as error:
                troubles.append(_words(error, wanted.folder))
        try:
            unpacking.finish()
        except OSError as error:
            troubles.append(_words(error, wanted.folder))
        return Outcome(
            outcome=FAILED if troubles else COLLECTED,
            files=sum(tally.files for tally in tallies),
            bytes=sum(tally.bytes for tally in tallies),
            message="; ".join(troubles)[:MESSAGE_CHARACTERS],
        )

    def _bring(self, glob: str, unpacking: Unpacking) -> Tally:
        broken = 0
        while True:
            try:
                return self._unpack(glob, unpacking)
            except NoAnswer as error:
                self._patience.wait(str(error), at_least=error.retry_after)
            except BrokenOff as error:
                broken += 1
                if broken == BROKEN_TRIES:
                    raise NotThere(f"its tar broke off {broken} times, the last time so: {error}") from error
                self._patience.wait(str(error))

    def _unpack(self, glob: str, unpacking: Unpacking) -> Tally:
        with self._redbox.stream(self._path, {"attempt": self._attempt, "glob": glob}) as stream:
            if stream.status != HTTPStatus.OK:
                raise _refusal(stream.whole())
            try:
                tally = unpacking.take(stream)
            except (NoAnswer, tarfile.TarError) as error:
                raise BrokenOff(str(error)) from error
        if not tally.members:  # red-box refuses globs that find nothing
            raise NotThere("it is there, but the job's user may not read it")
        return tally


def _refusal(answer: Answer) -> Exception:
    if answer.may_change or answer.status == HTTPStatus.UNAUTHORIZED:
        return NoAnswer(answer.explanation, retry_after=answer.retry_after)
    return NotThere(answer.explanation)


def _words(error: OSError, folder: Path) -> str:
    return f"{error.filename or folder}: {error.strerror or error}"


def _told(tally: Tally) -> list[str]:
    if not tally.left_out:
        return []
    named = "; ".join(f"{path}: {why}" for path, why in tally.left_out[:NAMED])
    return [f"{len(tally.left_out)} left out: {named}"]
