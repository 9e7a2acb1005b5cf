"""Section `logs` of the settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from redbox.core.yaml_document import Section


class LogSettings(Section):
    """How the files of jobs are followed."""

    settle_s: float = 5.0
    """Between the two last reads of a file on a network file system, after its job has ended."""
    silent_s: float = 300.0
    """A followed log without new bytes for so long ends cleanly; the reader asks again."""
    file_calls_per_second: Annotated[float, Field(gt=0)] = 500.0
    """fstat and open calls, for all users together."""
