"""slurmctld's state from a backup, before slurmctld starts on a new claim."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from redbox_slurmpod.backup.copies import STATE, check_backup

log = logging.getLogger(__name__)
MARGIN = 100_000
"""Of job ids: more than were given out between a backup and the loss of what it is a copy of."""
BEGUN, RESTORED = "redbox-restore-begun", "redbox-restored"
_NOT_STATE = frozenset({"lost+found"})


class CannotRestore(OSError):
    """The state is not put back, and slurmctld does not start."""


def restore(backup: Path, state: Path, first_job_id: int) -> None:
    """Once: a state that was put back is never replaced. One that was begun is begun again."""
    if (state / RESTORED).exists():
        log.info("%s was restored before", state)
        return
    found = {path.name for path in state.iterdir()} - _NOT_STATE
    if found and BEGUN not in found:
        raise CannotRestore(
            f"slurmctld has a state already ({', '.join(sorted(found)[:3])}): remove spec.redbox.restore, or "
            "delete the Controller and its claim, and create the Controller again"
        )
    manifest = check_backup(backup)
    lowest = manifest.next_job_id + MARGIN
    if first_job_id < lowest:
        raise CannotRestore(
            f"job ids that were given out after the backup of {manifest.taken} would be given out again: set "
            f"spec.redbox.restore.firstJobId to {lowest} or more"
        )
    (state / BEGUN).touch()
    for path in state.iterdir():
        if path.name in found - {BEGUN}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (backup / STATE).iterdir():  # not the folder itself: the claim's root has another owner
        if path.is_dir():
            shutil.copytree(path, state / path.name)
        else:
            shutil.copy(path, state)
    os.sync()
    (state / BEGUN).rename(state / RESTORED)
    log.info("restored the state of %s: the next job was %d", manifest.taken, manifest.next_job_id)
