"""The contract's part on what running jobs use."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from redbox_api.models import ResponseModel


class JobUsage(ResponseModel):
    """What one running job uses, of an array all its running tasks together."""

    key: str
    attempt: int
    measured_at: datetime
    cpu_seconds: float = Field(description="of all its processes since its start; never less than before")
    memory_bytes: int = Field(description="of all its processes, at that moment")


class UsageList(ResponseModel):
    """Jobs that run and were measured; one that is missing was not."""

    items: list[JobUsage]
    stale_since: datetime | None = None
