"""Which keys a daemon has read: it reads them at its start only, and SIGHUP starts a successor that does."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from pathlib import Path

from redbox_slurmpod.projected_files import read_files, version_folder
from redbox_slurmpod.supervision.processes import started_at

log = logging.getLogger(__name__)
_NAMES = frozenset({"slurm.jwks", "jwt.key"})
"""Not slurm.key: a daemon knows one alone, so each would refuse the others until all have read a new one."""
_AGAIN_S = 15
"""A reconfigure takes seconds, and a daemon that cannot read its configuration refuses it."""


class DaemonKeys:
    """The keys of `folder`, into which the kubelet projects new ones."""

    def __init__(self, folder: Path) -> None:
        self.read: Mapping[str, str] = {}
        """The SHA-256 of each file that the main process has read."""
        self._folder = folder
        self._version: Path | None = None
        self._newest: Mapping[str, str] = {}
        self._since = 0.0
        """A process that was started later has read the newest ones."""
        self._asked_at = float("-inf")
        self._look()

    def should_be_read_again(self, pid: int) -> bool:
        """Whether the main process, this one, is to get SIGHUP now."""
        self._look()
        if started_at(pid) >= self._since:
            self.read = self._newest
        now = time.monotonic()
        if self.read == self._newest or now - self._asked_at < _AGAIN_S:
            return False
        self._asked_at = now
        return True

    def _look(self) -> None:
        version = version_folder(self._folder)
        if version == self._version:
            return
        try:
            found = {name: text for name, text in read_files(self._folder).items() if name in _NAMES}
        except OSError as error:
            log.warning("the keys cannot be read: %s", error)
            return
        is_first, self._version = self._version is None, version
        newest = {name: hashlib.sha256(text).hexdigest() for name, text in found.items()}
        if newest != self._newest:
            self._newest = newest
            # At first no daemon has been started yet. Later, one that starts at this moment counts as older.
            self._since = 0.0 if is_first else time.clock_gettime(time.CLOCK_BOOTTIME)
            self._asked_at = float("-inf")
