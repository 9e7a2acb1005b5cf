"""The keys of Slurm and its tokens: how they stand in their Secret, and tokens signed with them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime

from redbox_kube.controller.steps import StepFailed

LIFETIME_S = 600
KEY_BYTES = 32
JWKS, JWT = "slurm.jwks", "jwt.key"
FORMER_JWT, ROTATION = "former-jwt.key", "rotation"
"""No pod has these two: the key that tokens were signed with before, and how far a rotation is."""
SlurmKey = Mapping[str, str]
"""One of slurm.jwks."""


def new_keys() -> dict[str, bytes]:
    """slurm.jwks and jwt.key."""
    return {JWKS: jwks_of([new_slurm_key([])]), JWT: secrets.token_bytes(KEY_BYTES)}


def new_slurm_key(others: Sequence[SlurmKey]) -> SlurmKey:
    """With a kid that none of the others has, and none before them."""
    numbers = (int(key["kid"][1:]) for key in others if key["kid"][1:].isdecimal())
    kid = f"k{max(numbers, default=0) + 1}"
    return {"alg": "HS256", "kty": "oct", "kid": kid, "k": _base64url(secrets.token_bytes(KEY_BYTES))}


def jwks_of(keys: Sequence[SlurmKey]) -> bytes:
    """slurm.jwks; the first key signs."""
    own = [{name: value for name, value in key.items() if name != "use"} for key in keys]
    return json.dumps({"keys": [{**own[0], "use": "default"}, *own[1:]]}).encode()


def keys_in(files: Mapping[str, bytes]) -> list[SlurmKey]:
    """Of slurm.jwks, the one that signs first. Raises StepFailed."""
    try:
        keys = [{name: str(value) for name, value in key.items()} for key in json.loads(files[JWKS])["keys"]]
        keys.sort(key=lambda key: key.get("use") != "default")
        if keys and all(key["k"] and key["kid"] for key in keys):
            return list(keys)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StepFailed(f"{JWKS} in the Secret of the keys cannot be read: {error!r}") from error
    raise StepFailed(f"{JWKS} in the Secret of the keys has no key, or one without a kid")


def signed_token(key: bytes, user: str, now: datetime, lifetime_s: int = LIFETIME_S) -> str:
    """A token of Slurm (auth/jwt, HS256) for this user."""
    issued = int(now.timestamp())
    claims = {"iat": issued, "exp": issued + lifetime_s, "sun": user}
    text = f"{_json({'alg': 'HS256', 'typ': 'JWT'})}.{_json(claims)}"
    return f"{text}.{_base64url(hmac.digest(key, text.encode(), hashlib.sha256))}"


def _json(value: Mapping[str, object]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
