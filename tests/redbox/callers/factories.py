"""Issues real tokens with real keys, as an API server would: for the tests of callers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from redbox.callers.tokens.key_sets import JwksFile

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = "redbox.dev/hpc1/k3v9x2qd7m"
NOW = 1_790_000_000.0

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@cache
def rsa_key(_number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """One key for each number, made once in a run."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(_number: int = 0, curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    """One key for each number, made once in a run."""
    return ec.generate_private_key(curve())


def public_jwk(kid: str, key: PrivateKey, **more: str) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        shown = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        shown = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**shown, "kid": kid, "use": "sig", **more}


def jwks(**keys: PrivateKey) -> bytes:
    return json.dumps({"keys": [public_jwk(kid, key) for kid, key in keys.items()]}).encode()


def claims(
    *,
    namespace: str = "physics",
    account: str = "default",
    uid: str = "0b8f5a1e-1f3d-4f6a-9a53-1f7d0a4f5c11",
    pod: str | None = "run-job",
    lives_s: float = 3600,
    now: float = NOW,
    kubernetes: dict[str, Any] | None = None,
    is_of_an_account: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    """The claims of a projected token; `changes` replace single ones, None removes."""
    bound: dict[str, Any] = {
        "namespace": namespace,
        "serviceaccount": {"name": account, "uid": uid},
        "node": {"name": "k1", "uid": "6f0e"},
        "warnafter": int(now) + 3607,
    }
    if pod is not None:
        bound["pod"] = {"name": pod, "uid": "77aa12"}
    made = {
        "iss": ISSUER,
        "aud": [AUDIENCE],
        "iat": int(now),
        "nbf": int(now),
        "exp": int(now + lives_s),
        "sub": f"system:serviceaccount:{namespace}:{account}",
        "kubernetes.io": (kubernetes or bound) if is_of_an_account else None,
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def token(
    key: PrivateKey | None = None,
    kid: str | None = "a",
    payload: Mapping[str, Any] | None = None,
    **header: Any,
) -> str:
    """A signed token."""
    signer = key or rsa_key()
    algorithm = "RS256" if isinstance(signer, rsa.RSAPrivateKey) else "ES256"
    headers = {**({"kid": kid} if kid is not None else {}), **header}
    encoded = json.dumps(claims() if payload is None else payload).encode()
    return jwt.PyJWS().encode(encoded, signer, algorithm, headers=headers)


@dataclass
class StoppedClock:
    """Stands still until a test lets time pass."""

    wall: float = NOW
    ticks: float = 5000.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.wall, UTC)

    def monotonic(self) -> float:
        return self.ticks

    async def sleep(self, seconds: float) -> None:
        self.pass_s(seconds)

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.ticks += seconds


@dataclass
class Documents(JwksFile):
    """A source of keys that a test changes, breaks and counts."""

    document: bytes
    problem: Exception | None = None
    fetched: int = 0
    closed: bool = False

    async def fetch(self) -> bytes | None:
        self.fetched += 1
        if self.problem is not None:
            raise self.problem
        return self.document

    async def close(self) -> None:
        self.closed = True
