"""The current time for statuses."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The current time to the second, as Kubernetes stores it."""
    return datetime.now(UTC).replace(microsecond=0)
