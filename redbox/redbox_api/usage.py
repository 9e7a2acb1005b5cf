"""The contract's part on resource usage of running jobs."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from redbox_api.models import ResponseModel


class JobUsage(ResponseModel):
    """Usage of one running job; of an array, of all its running tasks together."""

    key: str
    attempt: int
    measured_at: datetime
    cpu_seconds: float = Field(description="of all its processes since its start; never less than before")
    memory_bytes: int = Field(description="of all its processes, at that moment")


class UsageList(ResponseModel):
    """Running jobs that were measured."""

    items: list[JobUsage]
    stale_since: datetime | None = None
