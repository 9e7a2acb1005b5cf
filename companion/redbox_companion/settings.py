"""The companion's settings: environment variables and files that the operator put into its pod.

The frozen request is a file; values that the kubelet resolved (env with valueFrom) arrive as
`REDBOX_ENV_<NAME>`, those of a registry's Secret as `REDBOX_REGISTRY_…`, a script of a ConfigMap as a file.
They are added to the request here, so that no object of ours contains them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from redbox_shared import pod_contract
from redbox_shared.job_end import LOST_AFTER_S
from redbox_shared.pod_contract import JOB_VARIABLE_PREFIX, RESULTS_ONLY, SUBMIT_ONLY, WHOLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEY = re.compile(r"[A-Za-z0-9-]{1,64}")
MODES = (WHOLE, SUBMIT_ONLY, RESULTS_ONLY)
ENDS = ("Always", "Succeeded", "Failed")


class PodMisconfigured(Exception):
    """The pod's settings are wrong; the message says which."""


class ResultsRequest(NamedTuple):
    """Which files of the job's working directory to collect into a folder, and after which ends."""

    patterns: Sequence[str]
    when: str
    folder: Path


class CompanionSettings(NamedTuple):
    """Where red-box is, which job this pod represents, and where the termination message goes."""

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
    results: ResultsRequest | None
    lost_after_s: float


def settings_from(environ: Mapping[str, str], mode: str = "") -> CompanionSettings:
    """Read the pod's environment; an error names the variable that is missing or malformed."""
    key = _required(environ, pod_contract.KEY)
    _check(
        KEY.fullmatch(key), f"{pod_contract.KEY} is {key!r}: it must be 1 to 64 letters, digits and hyphens"
    )
    endpoint = _required(environ, pod_contract.ENDPOINT)
    _check(
        _is_address(endpoint), f"{pod_contract.ENDPOINT} is {endpoint!r}: its form must be https://HOST:PORT"
    )
    mode = mode or environ.get(pod_contract.MODE) or WHOLE
    _check(mode in MODES, f"{pod_contract.MODE} is {mode!r}: it must be one of {', '.join(MODES)}")
    results = _results(environ)
    _check(
        mode != RESULTS_ONLY or results, f"{pod_contract.RESULTS} is not set, but the mode is {RESULTS_ONLY}"
    )
    return CompanionSettings(
        endpoint=endpoint,
        key=key,
        attempt=_number(environ, pod_contract.ATTEMPT, 1),
        mode=mode,
        request_file=Path(environ.get(pod_contract.REQUEST_FILE_PATH, pod_contract.DEFAULT_REQUEST_FILE)),
        token_file=Path(environ.get(pod_contract.TOKEN_FILE_PATH, pod_contract.DEFAULT_TOKEN_FILE)),
        ca_file=_path(environ, pod_contract.CA_FILE_PATH),
        termination_file=termination_file(environ),
        environment={
            name[len(JOB_VARIABLE_PREFIX) :]: value
            for name, value in environ.items()
            if name.startswith(JOB_VARIABLE_PREFIX)
        },
        registry=_registry(environ),
        batch_file=_path(environ, pod_contract.BATCH_FILE_PATH),
        results=results,
        lost_after_s=_number(environ, pod_contract.LOST_AFTER, LOST_AFTER_S),
    )


def termination_file(environ: Mapping[str, str]) -> Path:
    """Where the kubelet reads a container's termination message."""
    return Path(environ.get(pod_contract.TERMINATION_FILE_PATH, "/dev/termination-log"))


def read_request(settings: CompanionSettings) -> bytes:
    """The frozen request as it goes to red-box, with the values that only this pod has."""
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
        raise PodMisconfigured(msg) from error
    return json.dumps(request).encode()


def _results(environ: Mapping[str, str]) -> ResultsRequest | None:
    raw = environ.get(pod_contract.RESULTS)
    if not raw:
        return None
    try:
        wanted = json.loads(raw)
        patterns, when = wanted["from"], wanted.get("when", "Always")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        msg = f'{pod_contract.RESULTS} is {raw!r}: an example is {{"from": ["out/*"], "when": "Always"}}'
        raise PodMisconfigured(msg) from error
    named = isinstance(patterns, list) and patterns and all(isinstance(p, str) and p for p in patterns)
    _check(named, f"{pod_contract.RESULTS} is {raw!r}: `from` must name at least one path or glob")
    _check(when in ENDS, f"{pod_contract.RESULTS} is {raw!r}: `when` must be one of {', '.join(ENDS)}")
    folder = environ.get(pod_contract.RESULTS_FOLDER_PATH, pod_contract.RESULTS_FOLDER)
    return ResultsRequest(patterns, when, Path(folder))


def _registry(environ: Mapping[str, str]) -> dict[str, str] | None:
    username = environ.get(pod_contract.REGISTRY_USERNAME, "")
    password = environ.get(pod_contract.REGISTRY_PASSWORD, "")
    return {"username": username, "password": password} if username or password else None


def _number(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    value = environ.get(name) or str(otherwise)
    _check(
        value.isascii() and value.isdecimal() and int(value[:9]),
        f"{name} is {value!r}: it must be a number from 1 on",
    )
    return int(value[:9])


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    return Path(environ[name]) if environ.get(name) else None


def _is_address(endpoint: str) -> bool:
    try:
        address = urlsplit(endpoint)
        return address.scheme == "https" and bool(address.hostname) and address.port != 0
    except ValueError:
        return False


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    _check(value, f"{name} is not set: this program runs in a pod that the Red Box operator creates")
    return value


def _check(right: object, sentence: str) -> None:
    if not right:
        raise PodMisconfigured(sentence)
