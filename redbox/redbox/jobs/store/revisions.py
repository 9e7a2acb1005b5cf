"""Revisions: `<epoch>.<n>`, where a list was made or a watch was interrupted, and where a watch resumes."""

from __future__ import annotations

import re

from redbox.jobs.errors import Gone

NUMBER = re.compile(r"[0-9]{1,18}")
FROM_THE_BEGINNING = -1


def resume_number(revision: str | None, *, epoch: str, oldest: int, newest: int, things: str) -> int:
    """The number to resume a watch from; Gone if changes since then are not remembered, or never were."""
    if revision is None:
        return FROM_THE_BEGINNING
    its_epoch, _, digits = revision.partition(".")
    number = int(digits) if NUMBER.fullmatch(digits) else FROM_THE_BEGINNING
    if its_epoch != epoch or not oldest <= number <= newest:
        raise Gone(
            f"Revision {revision[:100]} is too old or not of this red-box: "
            f"list the {things}, and watch from there."
        )
    return number
