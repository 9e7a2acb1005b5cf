"""Verification of the claims of a ServiceAccount token, after that of its signature. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redbox.callers.errors import TokenFault, Unauthenticated
from redbox.callers.identities import ServiceAccount

NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
ACCOUNT_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
UID = re.compile(r"[A-Za-z0-9-]{1,64}")
YEAR_9999 = 253_402_300_799


@dataclass(frozen=True, slots=True)
class ClaimRequirements:
    """The claims that are accepted from one cluster."""

    cluster: str
    issuer: str
    audience: str
    max_life_s: float = 3_600.0
    leeway_s: float = 30.0


@dataclass(frozen=True, slots=True)
class VerifiedServiceAccount:
    """A service account, and the Unix time until which its token is valid."""

    account: ServiceAccount
    until: float


def read_claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise Unauthenticated(TokenFault.MALFORMED, "the token's claims are not JSON") from error
    if not isinstance(claims, dict):
        raise Unauthenticated(TokenFault.MALFORMED, "the token's claims are not a JSON object")
    return claims


def is_meant_for(claims: Mapping[str, Any], expected: ClaimRequirements) -> bool:
    """Return whether issuer and audience match; decides between clusters that share a key."""
    return claims.get("iss") == expected.issuer and _audiences(claims) == [expected.audience]


def verify_claims(
    claims: Mapping[str, Any], expected: ClaimRequirements, now: float
) -> VerifiedServiceAccount:
    """Return the token's account; raises Unauthenticated."""
    _verify_issuer(claims, expected)
    _verify_audience(claims, expected)
    expires = _verify_times(claims, expected, now)
    return VerifiedServiceAccount(_account(claims, expected.cluster), expires + expected.leeway_s)


def _verify_issuer(claims: Mapping[str, Any], expected: ClaimRequirements) -> None:
    if claims.get("iss") != expected.issuer:
        raise Unauthenticated(
            TokenFault.ISSUER,
            f"the token was issued by {_shown(claims.get('iss'))}; "
            f"cluster {expected.cluster} issues as {expected.issuer!r}",
        )


def _audiences(claims: Mapping[str, Any]) -> list[object]:
    audience = claims.get("aud")
    return list(audience) if isinstance(audience, list) else [audience]


def _verify_audience(claims: Mapping[str, Any], expected: ClaimRequirements) -> None:
    """One audience, ours: another audience of the token could use it here in the caller's name."""
    audiences = _audiences(claims)
    if audiences == [expected.audience]:
        return
    if expected.audience in audiences:
        detail = f"the token is for {len(audiences)} audiences; it must be for {expected.audience!r} alone"
    else:
        detail = f"the token is for {_shown(claims.get('aud'))}; this red-box is {expected.audience!r}"
    raise Unauthenticated(TokenFault.AUDIENCE, detail)


def _verify_times(claims: Mapping[str, Any], expected: ClaimRequirements, now: float) -> float:
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if now >= expires + expected.leeway_s:
        raise Unauthenticated(
            TokenFault.EXPIRED, f"the token expired at {_time_text(expires)}; it is {_time_text(now)}"
        )
    for name, since in (("iat", issued), ("nbf", _time(claims, "nbf") if "nbf" in claims else issued)):
        if now < since - expected.leeway_s:
            raise Unauthenticated(
                TokenFault.NOT_YET,
                f"the token is valid from {_time_text(since)} ({name}); it is {_time_text(now)}: "
                "are the clocks apart?",
            )
    if expires - issued > expected.max_life_s:
        raise Unauthenticated(
            TokenFault.LIVES_TOO_LONG,
            f"the token was issued for {expires - issued:.0f} s; "
            f"at most {expected.max_life_s:.0f} s are accepted",
        )
    return expires


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= YEAR_9999:
        raise Unauthenticated(TokenFault.CLAIMS, f"the token's {name} is {_shown(value)}, not a time")
    return float(value)


def _account(claims: Mapping[str, Any], cluster: str) -> ServiceAccount:
    kubernetes = _object(claims, "kubernetes.io")
    service_account = _object(kubernetes, "serviceaccount")
    pod = _object(kubernetes, "pod") if "pod" in kubernetes else {}
    account = ServiceAccount(
        cluster=cluster,
        namespace=_word(kubernetes, "namespace", NAMESPACE),
        name=_word(service_account, "name", ACCOUNT_NAME),
        uid=_word(service_account, "uid", UID),
        pod=_word(pod, "name", ACCOUNT_NAME) if pod else "",
        pod_uid=_word(pod, "uid", UID) if pod else "",
    )
    if claims.get("sub") != f"system:serviceaccount:{account.namespace}:{account.name}":
        raise Unauthenticated(
            TokenFault.CLAIMS,
            f"the token's sub is {_shown(claims.get('sub'))}, which is not the account that it names",
        )
    return account


def _object(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = claims.get(name)
    if not isinstance(value, dict):
        raise Unauthenticated(TokenFault.CLAIMS, f"the token has no {name}: it is not a ServiceAccount token")
    return value


def _word(claims: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Unauthenticated(
            TokenFault.CLAIMS,
            f"the token's {name} is {_shown(value)}, which is not a valid name in Kubernetes",
        )
    return value


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _shown(value: object) -> str:
    return "(missing)" if value is None else repr(value)[:200]
