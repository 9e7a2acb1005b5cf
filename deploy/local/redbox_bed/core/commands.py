"""Commands of the machine: run to their end, with a failure as one sentence that ends in their own words."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from redbox_bed.core.errors import BedError

_LAST_CHARACTERS = 1000


def run_command(
    command: Sequence[str | Path],
    failure: str,
    *,
    timeout: float,
    stdin: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    error_type: type[BedError] = BedError,
) -> str:
    """Return the standard output; raises `error_type` as `FAILURE: what the command wrote to stderr`."""
    try:
        ended = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
            timeout=timeout,
            cwd=cwd,
            env=env,
        )
    except subprocess.SubprocessError as error:
        reason = str(getattr(error, "stderr", "") or error).strip()[-_LAST_CHARACTERS:]
        raise error_type(f"{failure}: {reason}") from error
    return ended.stdout
