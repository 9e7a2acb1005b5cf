"""The time as statuses have it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """To the second, as Kubernetes keeps times."""
    return datetime.now(UTC).replace(microsecond=0)
