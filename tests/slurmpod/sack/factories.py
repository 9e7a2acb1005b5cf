"""Keys of slurm.jwks."""

import base64
from typing import Any

SECRET, OTHER = b"s" * 32, b"o" * 32
ANY_UID = 0xFFFFFFFF


def entry(kid: str, secret: bytes = SECRET, **more: object) -> dict[str, Any]:
    k = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
    return {"alg": "HS256", "kty": "oct", "kid": kid, "k": k, **more}
