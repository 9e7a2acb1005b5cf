"""Parsing of a cluster's public keys from a JWKS document. Pure; `key_sets` fetches the document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from redbox.callers.errors import InvalidKeySet

MAX_KEYS = 100
MIN_RSA_BITS = 2048


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key with its only algorithm, which the token's header cannot change."""

    kid: str
    algorithm: str
    public: RSAPublicKey | EllipticCurvePublicKey


def parse_key_set(document: bytes) -> Mapping[str, VerifyingKey]:
    """Parse a JWKS; keys of other kinds are omitted; raises InvalidKeySet if none is usable."""
    try:
        entries = list(json.loads(document)["keys"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidKeySet(f"it is not a JWKS document: {error!r}"[:300]) from error
    if len(entries) > MAX_KEYS:
        raise InvalidKeySet(f"it holds {len(entries)} keys, more than {MAX_KEYS}")
    keys = [key for entry in entries if (key := _read_key(entry)) is not None]
    if not keys:
        raise InvalidKeySet(
            f"none of its {len(entries)} keys is usable: an RSA key of {MIN_RSA_BITS} bits (RS256) "
            "or a P-256 key (ES256), with a kid"
        )
    if len({key.kid for key in keys}) != len(keys):
        raise InvalidKeySet("two of its keys have the same kid")
    return {key.kid: key for key in keys}


def _read_key(entry: object) -> VerifyingKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or "d" in entry:
        return None
    kid = entry.get("kid")
    try:
        public = _public_key(entry)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithm = _algorithm_of(public)
    if not isinstance(kid, str) or not kid or algorithm is None or entry.get("alg", algorithm) != algorithm:
        return None
    return VerifyingKey(kid, algorithm, public)


def _public_key(entry: Mapping[str, Any]) -> RSAPublicKey | EllipticCurvePublicKey:
    reader = RSAAlgorithm if entry.get("kty") == "RSA" else ECAlgorithm
    key = reader.from_jwk(dict(entry))
    if not isinstance(key, RSAPublicKey | EllipticCurvePublicKey):
        raise TypeError("a private key in a JWKS")
    return key


def _algorithm_of(key: RSAPublicKey | EllipticCurvePublicKey) -> str | None:
    if isinstance(key, RSAPublicKey):
        return "RS256" if key.key_size >= MIN_RSA_BITS else None
    return "ES256" if isinstance(key.curve, SECP256R1) else None
