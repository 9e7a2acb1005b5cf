"""Collecting results: files of the job's working directory into a folder of the pod, which is a volume.

Red-box sends a tar for each path or glob, which is unpacked while it arrives, and requested again if it was
cut off. A failure here fails the results, never the job.
"""

from __future__ import annotations

import tarfile
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from redbox_companion.redbox_client import BlockingClient, RedboxAnswer, RedboxUnreachable
from redbox_companion.unpacking import TarUnpacker, UnpackedTar
from redbox_shared.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

    from redbox_companion.retrier import Retrier
    from redbox_companion.settings import ResultsRequest

COLLECTED, SKIPPED, FAILED = "Collected", "Skipped", "Failed"
CUT_OFF_TRIES = 6  # tars that began and did not end; after so many it is not the network
NAMED_PATHS = 3  # of those that were left out
MESSAGE_CHARACTERS = 500


class ResultsMissing(Exception):
    """There is no tar of this path or glob; the message says why."""


class TarCutOff(Exception):
    """A tar began, and did not end."""


class ResultsOutcome(NamedTuple):
    """How collecting ended, as the operator reads it."""

    outcome: str
    files: int = 0
    bytes: int = 0
    message: str = ""


def skipped(wanted: ResultsRequest, phase: str) -> ResultsOutcome | None:
    """The outcome if results are not wanted after this end of the job."""
    if wanted.when == "Always" or (wanted.when == "Succeeded") == (phase == "Succeeded"):
        return None
    return ResultsOutcome(
        SKIPPED, message=f"the job ended as {phase}, and results are collected when {wanted.when}"
    )


class ResultsCollector:
    """Requests tars of one job until they are whole."""

    def __init__(self, redbox: BlockingClient, path: str, attempt: int, retrier: Retrier) -> None:
        """`path` is the job's at red-box."""
        self._redbox = redbox
        self._path = f"{path}/archive"
        self._attempt = attempt
        self._retrier = retrier

    def collect(self, wanted: ResultsRequest) -> ResultsOutcome:
        """Each glob in turn; a glob that finds nothing does not keep the others away."""
        unpacker = TarUnpacker(wanted.folder)
        tars: list[UnpackedTar] = []
        errors: list[str] = []
        for glob in wanted.patterns:
            try:
                tar = self._collect_glob(glob, unpacker)
                tars.append(tar)
                if tar.left_out:
                    errors.append(f"{glob}: {_left_out(tar)}")
            except ResultsMissing as error:
                errors.append(f"{glob}: {error}")
            except OSError as error:
                errors.append(_volume_error(error, wanted.folder))
        try:
            unpacker.finish()
        except OSError as error:
            errors.append(_volume_error(error, wanted.folder))
        return ResultsOutcome(
            outcome=FAILED if errors else COLLECTED,
            files=sum(tar.files for tar in tars),
            bytes=sum(tar.bytes for tar in tars),
            message=_named("; ".join(errors))[:MESSAGE_CHARACTERS],
        )

    def _collect_glob(self, glob: str, unpacker: TarUnpacker) -> UnpackedTar:
        cut_off = 0
        while True:
            try:
                return self._request_tar(glob, unpacker)
            except RedboxUnreachable as error:
                self._retrier.wait(str(error), at_least=error.retry_after)
            except TarCutOff as error:
                cut_off += 1
                if cut_off == CUT_OFF_TRIES:
                    raise ResultsMissing(
                        f"its tar was cut off {cut_off} times, the last time: {error}"
                    ) from error
                self._retrier.wait(str(error))

    def _request_tar(self, glob: str, unpacker: TarUnpacker) -> UnpackedTar:
        with self._redbox.stream(self._path, {"attempt": self._attempt, "glob": glob}) as stream:
            if stream.status != HTTPStatus.OK:
                raise _refusal(stream.whole())
            try:
                tar = unpacker.unpack(stream)
            except (RedboxUnreachable, tarfile.TarError, ValueError) as error:  # of numbers that are none
                raise TarCutOff(str(error)) from error
        if not tar.members:  # red-box refuses globs that find nothing
            raise ResultsMissing("it exists, but the job's user may not read it")
        return tar


def _refusal(answer: RedboxAnswer) -> Exception:
    if answer.may_change or answer.status == HTTPStatus.UNAUTHORIZED:
        return RedboxUnreachable(answer.explanation, retry_after=answer.retry_after)
    return ResultsMissing(answer.explanation)


def _named(text: str) -> str:
    """Names of files may be in no encoding: their bytes are shown as escapes."""
    return printable(text.encode(errors="backslashreplace").decode())


def _volume_error(error: OSError, folder: Path) -> str:
    return f"{error.filename or folder}: {error.strerror or error}"


def _left_out(tar: UnpackedTar) -> str:
    named = "; ".join(f"{path}: {why}" for path, why in tar.left_out[:NAMED_PATHS])
    return f"{len(tar.left_out)} left out: {named}"
