"""Logins of imagePullSecrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import SecretStr

from redbox_api.job_parts import RegistryCredentials
from redbox_resourced.translation.errors import Unsupported

LOGINS, OLD_LOGINS = ".dockerconfigjson", ".dockercfg"


def registries(
    secrets: Iterable[tuple[str, Mapping[str, bytes]]],
) -> dict[str, RegistryCredentials | list[RegistryCredentials]]:
    """By registry, of the Secrets that exist; several of one registry are in the order of the Secrets."""
    found: dict[str, list[RegistryCredentials]] = {}
    for name, values in secrets:
        for registry, entry in _entries(name, values).items():
            login, logins = _credentials(name, registry, entry), found.setdefault(registry, [])
            if login not in logins:
                logins.append(login)
    return {registry: logins if len(logins) > 1 else logins[0] for registry, logins in found.items()}


def _entries(name: str, values: Mapping[str, bytes]) -> dict[str, Any]:
    if not values:
        return {}
    try:
        entries = json.loads(values[LOGINS])["auths"] if LOGINS in values else json.loads(values[OLD_LOGINS])
    except (KeyError, TypeError, ValueError):
        entries = None
    if not isinstance(entries, dict):
        raise Unsupported(f"spec.imagePullSecrets[{name}]: the Secret has no {LOGINS} with logins in JSON")
    return entries


def _credentials(name: str, registry: str, entry: object) -> RegistryCredentials:
    try:
        username, password = _login(entry if isinstance(entry, dict) else {})
        return RegistryCredentials(username=username, password=SecretStr(password))
    except (TypeError, ValueError):  # its text may hold the password
        raise Unsupported(
            f"spec.imagePullSecrets[{name}]: the login for {registry} is not as docker writes it"
        ) from None


def _login(entry: Mapping[str, Any]) -> tuple[str, str]:
    if entry.get("username") or not entry.get("auth"):
        return entry.get("username") or "", entry.get("password") or ""
    username, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
    return username, password
