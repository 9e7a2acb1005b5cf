"""What the companion is told: environment variables and files that the operator put into its pod.

The frozen request is a file; values that the kubelet resolved (env with valueFrom) arrive as
`REDBOX_ENV_<NAME>`, those of a registry's Secret as `REDBOX_REGISTRY_…`, a script of a ConfigMap as a file.
They are put into the request here, so that they are in no object of ours.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENV_PREFIX = "REDBOX_ENV_"
KEY = re.compile(r"[A-Za-z0-9-]{1,64}")
WHOLE, SUBMIT_ONLY, RESULTS_ONLY = "whole", "submit-only", "results-only"
MODES = (WHOLE, SUBMIT_ONLY, RESULTS_ONLY)
ENDS = ("Always", "Succeeded", "Failed")


class BadSettings(Exception):
    """The pod was made wrong: the message says what is missing."""


class Results(NamedTuple):
    """What to bring of the job's working directory into a folder, and after which ends."""

    patterns: Sequence[str]
    when: str
    folder: Path


class Settings(NamedTuple):
    """Where red-box is, which job this pod stands for, and where to leave word."""

    endpoint: str
    key: str
    attempt: int
    mode: str
    request_file: Path
    token_file: Path
    ca_file: Path | None
    termination_file: Path
    environment: Mapping[str, str]
    registry: Mapping[str, str] | None
    batch_file: Path | None
    results: Results | None
    lost_after_s: float


def settings_from(environ: Mapping[str, str], mode: str = "") -> Settings:
    """Read the pod's environment; says which variable is missing or malformed."""
    key = _required(environ, "REDBOX_KEY")
    _check(KEY.fullmatch(key), f"REDBOX_KEY is {key!r}: it must be 1 to 64 letters, digits and hyphens")
    endpoint = _required(environ, "REDBOX_ENDPOINT")
    _check(_is_address(endpoint), f"REDBOX_ENDPOINT is {endpoint!r}: it must be as https://HOST:PORT")
    mode = mode or environ.get("REDBOX_MODE") or WHOLE
    _check(mode in MODES, f"REDBOX_MODE is {mode!r}: it must be one of {', '.join(MODES)}")
    results = _results(environ)
    _check(mode != RESULTS_ONLY or results, "REDBOX_RESULTS is not set, and results are all that is wanted")
    ca_file = environ.get("REDBOX_CA_FILE")
    return Settings(
        endpoint=endpoint,
        key=key,
        attempt=_number(environ, "REDBOX_ATTEMPT", 1),
        mode=mode,
        request_file=Path(environ.get("REDBOX_REQUEST_FILE", "/etc/redbox/job/request.json")),
        token_file=Path(environ.get("REDBOX_TOKEN_FILE", "/var/run/secrets/redbox/token")),
        ca_file=Path(ca_file) if ca_file else None,
        termination_file=termination_file(environ),
        environment={
            name[len(ENV_PREFIX) :]: value for name, value in environ.items() if name.startswith(ENV_PREFIX)
        },
        registry=_registry(environ),
        batch_file=Path(environ["REDBOX_BATCH_FILE"]) if environ.get("REDBOX_BATCH_FILE") else None,
        results=results,
        lost_after_s=_number(environ, "REDBOX_LOST_AFTER", 600),
    )


def termination_file(environ: Mapping[str, str]) -> Path:
    """Where the kubelet looks for the word that a container leaves behind."""
    return Path(environ.get("REDBOX_TERMINATION_FILE", "/dev/termination-log"))


def read_request(settings: Settings) -> bytes:
    """The frozen request as it goes to red-box, with the values that only this pod knows."""
    try:
        request: dict[str, Any] = json.loads(settings.request_file.read_bytes())
        if settings.batch_file:
            request["batch"] = settings.batch_file.read_text("utf-8")
        if settings.environment:
            request["env"] = {**request.get("env", {}), **settings.environment}
        if settings.registry:
            request["container"] = {**request["container"], "registry": settings.registry}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        msg = f"the job's request in {settings.request_file} cannot be read: {error!r}"
        raise BadSettings(msg) from error
    return json.dumps(request).encode()


def _results(environ: Mapping[str, str]) -> Results | None:
    raw = environ.get("REDBOX_RESULTS")
    if not raw:
        return None
    try:
        asked = json.loads(raw)
        patterns, when = asked["from"], asked.get("when", "Always")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        msg = f'REDBOX_RESULTS is {raw!r}: it must be as {{"from": ["out/*"], "when": "Always"}}'
        raise BadSettings(msg) from error
    named = isinstance(patterns, list) and patterns and all(isinstance(p, str) and p for p in patterns)
    _check(named, f"REDBOX_RESULTS is {raw!r}: `from` must name at least one path or glob")
    _check(when in ENDS, f"REDBOX_RESULTS is {raw!r}: `when` must be one of {', '.join(ENDS)}")
    return Results(patterns, when, Path(environ.get("REDBOX_RESULTS_FOLDER", "/results")))


def _registry(environ: Mapping[str, str]) -> dict[str, str] | None:
    username = environ.get("REDBOX_REGISTRY_USERNAME", "")
    password = environ.get("REDBOX_REGISTRY_PASSWORD", "")
    return {"username": username, "password": password} if username or password else None


def _number(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    value = environ.get(name) or str(otherwise)
    _check(
        value.isascii() and value.isdecimal() and int(value[:9]),
        f"{name} is {value!r}: it must be a number from 1 on",
    )
    return int(value[:9])


def _is_address(endpoint: str) -> bool:
    try:
        address = urlsplit(endpoint)
        return address.scheme == "https" and bool(address.hostname) and address.port != 0
    except ValueError:
        return False


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    _check(value, f"{name} is not set: this program runs in a pod that the Red Box operator makes")
    return value


def _check(right: object, sentence: str) -> None:
    if not right:
        raise BadSettings(sentence)
