"""Logins of imagePullSecrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from redbox_api.job_parts import RegistryCredentials
from redbox_resourced.translation.errors import Unsupported

LOGINS, OLD_LOGINS = ".dockerconfigjson", ".dockercfg"


def registries(secrets: Iterable[tuple[str, Mapping[str, bytes]]]) -> dict[str, RegistryCredentials]:
    """By registry, of the Secrets that exist; the first that has a registry counts."""
    found: dict[str, RegistryCredentials] = {}
    for name, values in secrets:
        for registry, entry in _entries(name, values).items():
            found.setdefault(registry, _credentials(name, registry, entry))
    return found


def _entries(name: str, values: Mapping[str, bytes]) -> dict[str, Any]:
    if not values:
        return {}
    try:
        if LOGINS in values:
            entries = json.loads(values[LOGINS])["auths"]
        else:
            entries = json.loads(values[OLD_LOGINS])
    except (KeyError, TypeError, ValueError):
        entries = None
    if not isinstance(entries, dict):
        raise Unsupported(f"spec.imagePullSecrets[{name}]: the Secret has no {LOGINS} with logins in JSON")
    return entries


def _credentials(name: str, registry: str, entry: object) -> RegistryCredentials:
    try:
        if not isinstance(entry, dict):
            raise TypeError
        username, password = entry.get("username"), entry.get("password")
        if not username and entry.get("auth"):
            username, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
        return RegistryCredentials(username=username or "", password=password or "")
    except (TypeError, ValueError):  # its text may hold the password
        raise Unsupported(
            f"spec.imagePullSecrets[{name}]: the login for {registry} is not as docker writes it"
        ) from None
