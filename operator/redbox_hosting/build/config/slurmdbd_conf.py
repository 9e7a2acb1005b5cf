"""slurmdbd.conf, which holds the database's password and so is a Secret. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redbox_hosting.api import names
from redbox_hosting.api.daemons import AccountingSpec
from redbox_shared.hosted_settings.keys import SLURMDBD_KEYS
from redbox_shared.hosted_settings.lines import ConfRefusal, read_lines

PASSWORD = re.compile(r'[^\s"#\\\x00-\x1f\x7f]{1,256}')


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The database of slurmdbd, and its login."""

    host: str
    port: int
    database: str
    username: str
    password: str


@dataclass(frozen=True, slots=True)
class SlurmdbdFile:
    """The text of slurmdbd.conf, and what was refused."""

    text: str
    refused: tuple[ConfRefusal, ...]


def slurmdbd_conf(name: str, spec: AccountingSpec, database: DatabaseAddress) -> SlurmdbdFile:
    """The configuration of the slurmdbd of the Accounting `name`."""
    user = read_lines(spec.extra_conf or "", SLURMDBD_KEYS)
    refused = [*user.refused, *(ConfRefusal(str(line), "it belongs to slurm.conf") for line in user.lines)]
    password = database.password
    if not PASSWORD.fullmatch(password):
        why = 'choose one of at most 256 characters without space, ", # and \\'
        refused.append(ConfRefusal("the database's password", why))
        password = ""
    jwks = ",jwks=/etc/slurm/jwks.json" if spec.jwks_key_ref else ""
    settings = {
        "DbdHost": f"{names.accounting_name(name)}-0",
        "DbdPort": str(names.PORT_SLURMDBD),
        "SlurmUser": "slurm",
        "AuthType": "auth/slurm",
        "AuthInfo": "use_client_ids",
        "AuthAltTypes": "auth/jwt",
        "AuthAltParameters": f"jwt_key=/etc/slurm/jwt.key{jwks}",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": database.host,
        "StoragePort": str(database.port),
        "StorageLoc": database.database,
        "StorageUser": database.username,
        "StoragePass": password,
        "LogTimeFormat": "iso8601_ms,format_stderr",
        "PidFile": "/run/slurmdbd/slurmdbd.pid",
        **dict(user.settings),
    }
    return SlurmdbdFile("".join(f"{key}={value}\n" for key, value in settings.items()), tuple(refused))
