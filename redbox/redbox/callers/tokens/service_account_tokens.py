"""Verifies ServiceAccount tokens of the configured clusters, offline.

The cluster is the one whose key set verified the signature, never the issuer alone: kubeadm clusters all have
the same issuer. What the claims must say is in `claims`, where keys come from in `key_sets`.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from redbox.callers.errors import AuthenticationFault, AuthenticationUnavailable, Unauthenticated
from redbox.callers.tokens.claims import (
    ClaimRequirements,
    VerifiedServiceAccount,
    is_meant_for,
    read_claims,
    verify_claims,
)
from redbox.callers.tokens.jwks import VerifyingKey
from redbox.callers.tokens.key_sets import KeySet
from redbox.core.clock import Clock

ALGORITHMS = ("RS256", "ES256")
MAX_TOKEN_CHARACTERS = 16 * 1024
JWT_DOTS = 2

_signatures = jwt.PyJWS(algorithms=ALGORITHMS)


@dataclass(frozen=True, slots=True)
class TrustedCluster:
    """A cluster whose tokens are accepted."""

    expected: ClaimRequirements
    keys: KeySet


_Candidate = tuple[TrustedCluster, VerifyingKey]


@dataclass(frozen=True, slots=True)
class _Signed:
    cluster: TrustedCluster
    payload: bytes


class TokenVerifier:
    """Tells whose token it is, or why it does not count."""

    def __init__(self, clusters: Sequence[TrustedCluster], clock: Clock) -> None:
        self._clusters = tuple(clusters)
        self._clock = clock

    async def verify(self, token: str) -> VerifiedServiceAccount:
        """Return whose token this is; raises Unauthenticated, or CannotTell while the keys are not known."""
        kid = _key_name(token)
        signed = [
            _Signed(cluster, payload)
            for cluster, key in await self._candidates(kid)
            if (payload := _verified_payload(token, key)) is not None
        ]
        if not signed:
            raise Unauthenticated(
                AuthenticationFault.SIGNATURE, f"the token's signature is not by its key {kid[:64]!r}"
            )
        claims = read_claims(signed[0].payload)
        meant = [one.cluster for one in signed if is_meant_for(claims, one.cluster.expected)]
        if len(meant) > 1:
            names = ", ".join(cluster.expected.cluster for cluster in meant)
            raise Unauthenticated(
                AuthenticationFault.AMBIGUOUS,
                f"clusters {names} share key, issuer and audience: which one is it from?",
            )
        return verify_claims(
            claims, (meant or [signed[0].cluster])[0].expected, self._clock.now().timestamp()
        )

    async def _candidates(self, kid: str) -> list[_Candidate]:
        """Clusters that have this key. One that is out of reach is waited for only if no other has it."""
        likely = [cluster for cluster in self._clusters if cluster.keys.may_have(kid)]
        found, missed = await _look_up(likely, kid)
        if not found:
            found, missed = await _look_up(self._clusters, kid)
        if found:
            return found
        raise missed or self._unknown_key(kid)

    def _unknown_key(self, kid: str) -> Unauthenticated:
        wait_s = max((cluster.keys.wait_s() for cluster in self._clusters), default=0.0)
        return Unauthenticated(
            AuthenticationFault.UNKNOWN_KEY,
            f"the token is signed by key {kid[:64]!r}, which is not one of the accepted clusters'",
            retry_after_s=wait_s or None,  # a key that is new since the last fetch is found then
        )


async def _look_up(
    clusters: Sequence[TrustedCluster], kid: str
) -> tuple[list[_Candidate], AuthenticationUnavailable | None]:
    """The key in each cluster that has it, and why a cluster could not be asked."""
    answers = await asyncio.gather(*(cluster.keys.key(kid) for cluster in clusters), return_exceptions=True)
    found: list[_Candidate] = []
    missed = None
    for cluster, answer in zip(clusters, answers, strict=True):
        if isinstance(answer, VerifyingKey):
            found.append((cluster, answer))
        elif isinstance(answer, AuthenticationUnavailable):
            missed = answer
        elif answer is not None:
            raise answer
    return found, missed


def _key_name(token: str) -> str:
    """The kid of the header, once everything else in the header is acceptable."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise Unauthenticated(
            AuthenticationFault.MALFORMED, f"the token is longer than {MAX_TOKEN_CHARACTERS} characters"
        )
    header = _header(token)
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        said = f"the token's algorithm is {str(algorithm)[:32]!r}; accepted are {' and '.join(ALGORITHMS)}"
        raise Unauthenticated(AuthenticationFault.ALGORITHM, said)
    if not isinstance(kid, str) or not kid:
        raise Unauthenticated(
            AuthenticationFault.MALFORMED, "the token does not name the key that signed it (kid)"
        )
    return kid


def _header(token: str) -> dict[str, Any]:
    """Read the header alone; the whole token is taken apart, strictly, where its signature is verified."""
    first, *rest = token.encode("ascii", "replace").split(b".")
    if len(rest) != JWT_DOTS:
        raise Unauthenticated(
            AuthenticationFault.MALFORMED, "the token is no JWT: those have three parts, with dots between"
        )
    try:
        header = json.loads(base64.urlsafe_b64decode(first + b"=" * (-len(first) % 4)))
    except (ValueError, RecursionError) as error:
        raise Unauthenticated(AuthenticationFault.MALFORMED, f"the token is no JWT: {error}"[:300]) from error
    if not isinstance(header, dict):
        raise Unauthenticated(AuthenticationFault.MALFORMED, "the token is no JWT: its header is no object")
    return header


def _verified_payload(token: str, key: VerifyingKey) -> bytes | None:
    try:
        decoded = _signatures.decode_complete(token, key.public, algorithms=[key.algorithm])
    except jwt.InvalidAlgorithmError as error:
        said = f"the token's algorithm is not {key.algorithm}, which is that of its key"
        raise Unauthenticated(AuthenticationFault.ALGORITHM, said) from error
    except jwt.InvalidSignatureError:
        return None
    except jwt.InvalidTokenError as error:
        raise Unauthenticated(AuthenticationFault.MALFORMED, f"the token is no JWT: {error}"[:300]) from error
    return bytes(decoded["payload"])
