"""Verification of ServiceAccount tokens of the configured clusters, offline.

The cluster is determined by the key set that verifies the signature, never by the issuer alone: all kubeadm
clusters have the same issuer. `claims` verifies the claims, `key_sets` fetches the keys.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from redbox.callers.errors import AuthenticationUnavailable, TokenFault, Unauthenticated
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
    """A cluster whose tokens are accepted, with its requirements and keys."""

    expected: ClaimRequirements
    keys: KeySet


_Candidate = tuple[TrustedCluster, VerifyingKey]


class TokenVerifier:
    """Verifies tokens against the keys and requirements of all clusters."""

    def __init__(self, clusters: Sequence[TrustedCluster], clock: Clock) -> None:
        self._clusters = tuple(clusters)
        self._clock = clock

    async def verify(self, token: str) -> VerifiedServiceAccount:
        """Return the token's account; raises Unauthenticated, or AuthenticationUnavailable without keys."""
        kid = _key_name(token)
        signed = [
            (cluster, payload)
            for cluster, key in await self._candidates(kid)
            if (payload := _verified_payload(token, key)) is not None
        ]
        if not signed:
            raise Unauthenticated(
                TokenFault.SIGNATURE, f"the token's signature is not by its key {kid[:64]!r}"
            )
        first, payload = signed[0]
        claims = read_claims(payload)
        matches = [cluster for cluster, _ in signed if is_meant_for(claims, cluster.expected)]
        if len(matches) > 1:
            names = ", ".join(cluster.expected.cluster for cluster in matches)
            raise Unauthenticated(
                TokenFault.AMBIGUOUS,
                f"clusters {names} share key, issuer and audience: the token's cluster is ambiguous",
            )
        return verify_claims(claims, (matches or [first])[0].expected, self._clock.now().timestamp())

    async def _candidates(self, kid: str) -> list[_Candidate]:
        """Return clusters that have this key; wait for an unreachable one only if no other has it."""
        likely = [cluster for cluster in self._clusters if cluster.keys.may_have(kid)]
        candidates, error = await _look_up(likely, kid)
        if not candidates:
            candidates, error = await _look_up(self._clusters, kid)
        if candidates:
            return candidates
        raise error or self._unknown_key(kid)

    def _unknown_key(self, kid: str) -> Unauthenticated:
        wait_s = max((cluster.keys.wait_s() for cluster in self._clusters), default=0.0)
        return Unauthenticated(
            TokenFault.UNKNOWN_KEY,
            f"the token is signed by key {kid[:64]!r}, which is not one of the accepted clusters'",
            retry_after_s=wait_s or None,  # the next fetch finds a key that is new since the last one
        )


async def _look_up(
    clusters: Sequence[TrustedCluster], kid: str
) -> tuple[list[_Candidate], AuthenticationUnavailable | None]:
    """Return the key of each cluster that has it, and the error of a cluster without valid keys."""
    results = await asyncio.gather(*(cluster.keys.key(kid) for cluster in clusters), return_exceptions=True)
    candidates: list[_Candidate] = []
    error = None
    for cluster, result in zip(clusters, results, strict=True):
        if isinstance(result, VerifyingKey):
            candidates.append((cluster, result))
        elif isinstance(result, AuthenticationUnavailable):
            error = result
        elif result is not None:
            raise result
    return candidates, error


def _key_name(token: str) -> str:
    """Return the kid of the header, after validation of the rest of the header."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise Unauthenticated(
            TokenFault.MALFORMED, f"the token is longer than {MAX_TOKEN_CHARACTERS} characters"
        )
    header = _header(token)
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        detail = f"the token's algorithm is {str(algorithm)[:32]!r}; accepted are {' and '.join(ALGORITHMS)}"
        raise Unauthenticated(TokenFault.ALGORITHM, detail)
    if not isinstance(kid, str) or not kid:
        raise Unauthenticated(TokenFault.MALFORMED, "the token does not name the key that signed it (kid)")
    return kid


def _header(token: str) -> dict[str, Any]:
    """Parse the header only; the token is parsed strictly when its signature is verified."""
    first, *rest = token.encode("ascii", "replace").split(b".")
    if len(rest) != JWT_DOTS:
        raise Unauthenticated(
            TokenFault.MALFORMED, "the token is not a JWT, which has three parts with dots in between"
        )
    try:
        header = json.loads(base64.urlsafe_b64decode(first + b"=" * (-len(first) % 4)))
    except (ValueError, RecursionError) as error:
        raise Unauthenticated(TokenFault.MALFORMED, f"the token is not a JWT: {error}"[:300]) from error
    if not isinstance(header, dict):
        raise Unauthenticated(TokenFault.MALFORMED, "the token is not a JWT: its header is not an object")
    return header


def _verified_payload(token: str, key: VerifyingKey) -> bytes | None:
    try:
        decoded = _signatures.decode_complete(token, key.public, algorithms=[key.algorithm])
    except jwt.InvalidAlgorithmError as error:
        detail = f"the token's algorithm is not {key.algorithm}, which its key requires"
        raise Unauthenticated(TokenFault.ALGORITHM, detail) from error
    except jwt.InvalidSignatureError:
        return None
    except jwt.InvalidTokenError as error:
        raise Unauthenticated(TokenFault.MALFORMED, f"the token is not a JWT: {error}"[:300]) from error
    return bytes(decoded["payload"])
