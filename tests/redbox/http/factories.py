"""The settings and the tokens of a red-box for tests."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

from redbox.callers.tokens.opaque_tokens import TokenStore
from redbox.core.clock import SystemClock
from tests.redbox.callers.factories import AUDIENCE, ISSUER, jwks, rsa_key

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For a Unix socket: httpx reads the authorities of the web for each client that is given no context."""


def write_settings(directory: Path) -> tuple[dict[str, str], Path]:
    (directory / "journal").mkdir()
    store = TokenStore(directory / "tokens.json", SystemClock())
    made = {name: store.create(user, 3600) for name, user in HOLDERS.items()}
    keys = directory / "jwks.json"
    keys.write_bytes(jwks(a=rsa_key()))
    prod = {"name": "prod", "issuer": ISSUER, "audience": AUDIENCE, "jwks_file": str(keys)}
    rules = [
        {"tokens": [made["operator"].record.id], "roles": ["operator"]},
        {"tokens": [made["reader"].record.id], "roles": ["reader"]},
        {"tokens": [made["volumes"].record.id], "roles": ["volumes"]},
        {"tokens": [made["metrics"].record.id], "roles": ["metrics"]},
        {"tokens": [made["limited"].record.id], "partitions": ["debug"], "accounts": ["physics"]},
        {"cluster": "prod", "namespaces": ["physics"], "user": "alice"},
    ]
    settings = {
        "name": "hpc1",
        "listen": {"unix_socket": str(directory / "redbox.sock")},
        "callers": {"tokens_file": str(directory / "tokens.json"), "clusters": [prod]},
        "mapping": {"rules": rules},
    }
    path = directory / "redbox.yaml"
    path.write_text(json.dumps(settings))  # which is YAML too
    return {name: token.secret for name, token in made.items()}, path


HOLDERS = {
    "alice": "alice",
    "bob": "bob",
    "operator": "alice",
    "reader": "alice",
    "limited": "bob",
    "volumes": "bob",
    "metrics": "bob",
}
