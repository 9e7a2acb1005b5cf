"""A token as it stands in its Secret, and how long one may be valid. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from redbox_hosting.controllers.clusters.keys import signed_token
from redbox_kube.controller.steps import StepFailed

PARTS = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?")
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=30)
RENEWED_AT = 0.8
LATEST = 253_402_300_800
"""The year 10000, which no datetime has."""


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """From when to when a token is valid."""

    issued_at: datetime
    expires_at: datetime

    @property
    def lifetime(self) -> timedelta:
        return self.expires_at - self.issued_at

    @property
    def due_at(self) -> datetime:
        """When it is to be renewed."""
        return self.issued_at + self.lifetime * RENEWED_AT


def lifetime_of(text: str) -> timedelta:
    """Such as 1h30m; raises StepFailed where it is too short or too long."""
    match = PARTS.fullmatch(text)
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    if not SHORTEST.total_seconds() <= total <= LONGEST.total_seconds():
        raise StepFailed(
            f"spec.lifetime {text!r} is not between 1m and {LONGEST.days * 24}h: choose another one"
        )
    return timedelta(seconds=total)


def new_token(key: bytes, user: str, now: datetime, lifetime: timedelta) -> str:
    return signed_token(key, user, now, int(lifetime.total_seconds()))


def times_of(text: str, key: bytes, user: str) -> TokenTimes | None:
    """None: it is no token of this user that was signed with this key."""
    try:
        payload = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        issued, expires = int(claims["iat"]), int(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None
    if not 0 <= issued < expires < LATEST:
        return None
    times = TokenTimes(datetime.fromtimestamp(issued, UTC), datetime.fromtimestamp(expires, UTC))
    return times if text == new_token(key, user, times.issued_at, times.lifetime) else None
