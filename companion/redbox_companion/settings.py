"""What the companion is told: environment variables and files that the operator put into its pod.

The frozen request is a file; values that the kubelet resolved (env with valueFrom) arrive as
`REDBOX_ENV_<NAME>` and are put into the request here, so that they are in no object of Kubernetes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV_PREFIX = "REDBOX_ENV_"
KEY = re.compile(r"[A-Za-z0-9-]{1,64}")


class BadSettings(Exception):
    """The pod was made wrong: the message says what is missing."""


@dataclass(frozen=True)
class Settings:
    """Where red-box is, which job this pod stands for, and where to leave word."""

    endpoint: str
    key: str
    attempt: int
    request_file: Path
    token_file: Path
    ca_file: Path | None
    termination_file: Path
    environment: Mapping[str, str]


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read the pod's environment; says which variable is missing or malformed."""
    key = _required(environ, "REDBOX_KEY")
    if not KEY.fullmatch(key):
        msg = f"REDBOX_KEY is {key!r}: it must be 1 to 64 letters, digits and hyphens"
        raise BadSettings(msg)
    endpoint = _required(environ, "REDBOX_ENDPOINT")
    if not endpoint.startswith("https://"):
        msg = f"REDBOX_ENDPOINT is {endpoint!r}: it must begin with https://"
        raise BadSettings(msg)
    attempt = environ.get("REDBOX_ATTEMPT", "1")
    if not attempt.isdecimal() or int(attempt) < 1:
        msg = f"REDBOX_ATTEMPT is {attempt!r}: it must be a number from 1 on"
        raise BadSettings(msg)
    ca_file = environ.get("REDBOX_CA_FILE")
    return Settings(
        endpoint=endpoint,
        key=key,
        attempt=int(attempt),
        request_file=Path(environ.get("REDBOX_REQUEST_FILE", "/etc/redbox/job/request.json")),
        token_file=Path(environ.get("REDBOX_TOKEN_FILE", "/var/run/secrets/redbox/token")),
        ca_file=Path(ca_file) if ca_file else None,
        termination_file=Path(environ.get("REDBOX_TERMINATION_FILE", "/dev/termination-log")),
        environment={
            name[len(ENV_PREFIX) :]: value for name, value in environ.items() if name.startswith(ENV_PREFIX)
        },
    )


def read_request(settings: Settings) -> bytes:
    """The frozen request as it goes to red-box, with the values that only this pod knows."""
    try:
        request: dict[str, Any] = json.loads(settings.request_file.read_bytes())
    except (OSError, ValueError) as error:
        msg = f"the job's request in {settings.request_file} cannot be read: {error}"
        raise BadSettings(msg) from error
    if settings.environment:
        request["env"] = {**request.get("env", {}), **settings.environment}
    return json.dumps(request).encode()


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        msg = f"{name} is not set: this program runs in a pod that the Red Box operator makes"
        raise BadSettings(msg)
    return value
