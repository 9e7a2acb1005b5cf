"""How many tokens are valid, are to be renewed, or have ended. Read from their statuses at each scrape."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from redbox_hosting.api.daemons import Token
from redbox_hosting.controllers.access.token_text import TokenTimes
from redbox_kube.controller.watched import WatchedKind


class TokenState(StrEnum):
    """Of one Token."""

    VALID = "valid"
    EXPIRING = "expiring"
    EXPIRED = "expired"
    NONE = "none"


def follow_tokens(
    registry: CollectorRegistry, tokens: WatchedKind[Token], clock: Callable[[], datetime]
) -> None:
    gauge = Gauge(
        "redbox_hosting_tokens",
        "Tokens by state; expiring: in the last fifth of their life, and not renewed.",
        ("state",),
        registry=registry,
    )

    def number(state: TokenState) -> float:
        now = clock()
        return sum(state_of(token, now) is state for _, token in tokens.items())

    for state in TokenState:
        gauge.labels(state).set_function(partial(number, state))


def state_of(token: Token, now: datetime) -> TokenState:
    """By what was written last."""
    issued, expires = token.status.issued_at, token.status.expires_at
    if issued is None or expires is None:
        return TokenState.NONE
    if now >= expires:
        return TokenState.EXPIRED
    return TokenState.EXPIRING if now >= TokenTimes(issued, expires).due_at else TokenState.VALID
