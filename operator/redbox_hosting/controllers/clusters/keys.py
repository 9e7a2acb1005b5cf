"""The keys of Slurm and its tokens: made once, and tokens signed with them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from datetime import datetime

LIFETIME_S = 600
KEY_BYTES = 32


def new_keys() -> dict[str, bytes]:
    """slurm.jwks and jwt.key."""
    key = _base64url(secrets.token_bytes(KEY_BYTES))
    own = {"alg": "HS256", "kty": "oct", "kid": "k1", "k": key, "use": "default"}
    return {"slurm.jwks": json.dumps({"keys": [own]}).encode(), "jwt.key": secrets.token_bytes(KEY_BYTES)}


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
