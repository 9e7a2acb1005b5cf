"""Tokens of auth/slurm: JWTs (HS256) by slurm.key or a key of slurm.jwks, with the plugin's claims.

slurm.jwks has a `kid` for each key. The key with `"use": "default"` signs, or else the first; each verifies
until its `exp`. A token without kid is one of the default key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redbox_slurmpod.projected_files import read_files

_LIFETIME_S = 60
_ANY_UID = 0xFFFFFFFF
_SHORTEST_KEY = 16
_CONTEXTS = frozenset({"auth", "sack"})


class KeysUnusable(OSError):
    """The folder has no key, or a slurm.jwks that Slurm itself would refuse."""


@dataclass(frozen=True)
class SackKey:
    """One key; `kid` is None for a slurm.key."""

    secret: bytes
    kid: str | None = None
    expires: float | None = None


@dataclass(frozen=True)
class SackKeys:
    """The keys of a cluster, the default one first."""

    keys: tuple[SackKey, ...]

    def sign(self, claims: Mapping[str, Any]) -> str:
        key = self.keys[0]
        header = {"alg": "HS256", "typ": "JWT"} | ({"kid": key.kid} if key.kid else {})
        signed = f"{_encoded(_json(header))}.{_encoded(_json(claims))}"
        return f"{signed}.{_encoded(_mac(key, signed))}"

    def verify(self, token: str, uid: int) -> bool:
        """Whether the token is genuine, still valid, and for this reader."""
        try:
            signed, _, signature = token.rpartition(".")
            header, claims = (json.loads(_decoded(part)) for part in signed.split("."))
            key = self._of(header.get("kid"))
            return (
                key is not None
                and header["alg"] == "HS256"
                and hmac.compare_digest(_decoded(signature), _mac(key, signed))
                and claims["exp"] >= time.time()
                and claims["ruid"] % (_ANY_UID + 1) in (uid, _ANY_UID)
                and claims["context"] in _CONTEXTS
            )
        except (ValueError, KeyError, TypeError, AttributeError):  # it is no such token
            return False

    def _of(self, kid: object) -> SackKey | None:
        key = self.keys[0] if kid is None else next((key for key in self.keys if key.kid == kid), None)
        return None if key and key.expires is not None and key.expires < time.time() else key


def read_keys(folder: Path) -> SackKeys:
    """Of slurm.jwks if there is one, as Slurm does, else of slurm.key."""
    try:
        files = read_files(folder)
    except OSError as error:
        raise KeysUnusable(f"the keys in {folder} cannot be read: {error}") from error
    if "slurm.jwks" in files:
        return _parse_jwks(files["slurm.jwks"])
    if len(files.get("slurm.key", b"")) < _SHORTEST_KEY:
        raise KeysUnusable(
            f"{folder} has neither slurm.jwks nor a slurm.key of {_SHORTEST_KEY} bytes or more"
        )
    return SackKeys((SackKey(files["slurm.key"]),))


def _parse_jwks(content: bytes) -> SackKeys:
    try:
        entries = json.loads(content)["keys"]
        keys = [_parse_key(entry) for entry in entries]
        defaults = [
            number for number, entry in enumerate(entries) if str(entry.get("use", "")).lower() == "default"
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeysUnusable(f"slurm.jwks is not a list of keys: {error!r}") from error
    if not keys or len(defaults) > 1 or len({key.kid for key in keys}) < len(keys):
        raise KeysUnusable("slurm.jwks needs at least one key, kids that differ, and at most one default key")
    first = defaults[0] if defaults else 0
    return SackKeys((keys[first], *keys[:first], *keys[first + 1 :]))


def _parse_key(entry: Mapping[str, Any]) -> SackKey:
    secret = _decoded(entry["k"])
    if entry["kty"].lower() != "oct" or entry["alg"].upper() != "HS256" or len(secret) < _SHORTEST_KEY:
        raise ValueError(f"{entry['kid']} is no HS256 key of {_SHORTEST_KEY} bytes or more")
    return SackKey(secret, str(entry["kid"]), float(entry["exp"]) if "exp" in entry else None)


def claims_of(
    *,
    cluster: str,
    version: int,
    uid: int,
    gid: int,
    receiver: int,
    payload: bytes,
    host: str,
    identity: object,
) -> Mapping[str, Any]:
    """Who asks, by the kernel's word; `identity` is for AuthInfo=use_client_ids."""
    now = int(time.time())
    return {
        "iat": now,
        "exp": now + _LIFETIME_S,
        "ver": version,
        "ruid": receiver,
        "context": "sack",
        "cluster": cluster,
        **({"id": identity} if identity else {}),
        "uid": uid,
        "gid": gid,
        "host": host,
        **({"payload": base64.b64encode(payload).decode()} if payload else {}),
    }


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _mac(key: SackKey, signed: str) -> bytes:
    return hmac.new(key.secret, signed.encode(), hashlib.sha256).digest()


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
