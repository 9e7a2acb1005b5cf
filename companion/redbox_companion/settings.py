"""The companion's settings: environment variables and files that the operator put into its pod.

The frozen request is a file; values that the kubelet resolved (env with valueFrom) arrive as
`REDBOX_ENV_<NAME>`, those of a registry's Secret as `REDBOX_REGISTRY_…`, a script of a ConfigMap as a file.
They are added to the request here, so that no object of ours contains them.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from redbox_shared import pod_contract
from redbox_shared.job_end import LOST_AFTER_S
from redbox_shared.pod_contract import HELPER, JOB_VARIABLE_PREFIX, SUBMIT_ONLY, WHOLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LONGEST_KEY = 64
MODES = (WHOLE, SUBMIT_ONLY, HELPER)
ENDS = ("Always", "Succeeded", "Failed")


class PodMisconfigured(Exception):
    """The pod's settings are wrong; the message says which."""


class ResultsRequest:
    """Which files of the job's working directory to collect into a folder, and after which ends."""

    def __init__(self, patterns: Sequence[str], when: str, folder: Path) -> None:
        self.patterns = patterns
        self.when = when
        self.folder = folder


class JobPort:
    """A port of the companion, and where its connections go: a port of one of the job's nodes."""

    def __init__(self, name: str, port: int, target_port: int, node: str) -> None:
        self.name = name
        self.port = port
        self.target_port = target_port
        self.node = node


class CompanionSettings:
    """Where red-box is, which job this pod represents, and where the termination message goes."""

    def __init__(self, environ: Mapping[str, str], mode: str = "") -> None:
        """Read the pod's environment; an error names the variable that is missing or malformed."""
        self.key = _required(environ, pod_contract.KEY)
        is_key = len(self.key) <= LONGEST_KEY and self.key.isascii() and self.key.replace("-", "0").isalnum()
        _check(is_key, pod_contract.KEY, self.key, f"be 1 to {LONGEST_KEY} letters, digits and hyphens")
        self.endpoint = _required(environ, pod_contract.ENDPOINT)
        form = "have the form https://HOST:PORT"
        _check(_is_address(self.endpoint), pod_contract.ENDPOINT, self.endpoint, form)
        self.mode = mode or environ.get(pod_contract.MODE) or WHOLE
        _check(self.mode in MODES, pod_contract.MODE, self.mode, f"be one of {', '.join(MODES)}")
        self.results = _results(environ)
        self.ports = _ports(environ)
        self.readiness_port = _number(
            environ, pod_contract.READINESS_PORT, pod_contract.DEFAULT_READINESS_PORT
        )
        if self.mode == HELPER and not (self.results or self.ports):
            msg = f"neither {pod_contract.PORTS} nor {pod_contract.RESULTS} is set, but the mode is {HELPER}"
            raise PodMisconfigured(msg)
        self.attempt = _number(environ, pod_contract.ATTEMPT, 1)
        self.request_file = Path(
            environ.get(pod_contract.REQUEST_FILE_PATH, pod_contract.DEFAULT_REQUEST_FILE)
        )
        self.token_file = Path(environ.get(pod_contract.TOKEN_FILE_PATH, pod_contract.DEFAULT_TOKEN_FILE))
        self.ca_file = _path(environ, pod_contract.CA_FILE_PATH)
        self.termination_file = termination_file(environ)
        self.environment = {
            name[len(JOB_VARIABLE_PREFIX) :]: value
            for name, value in environ.items()
            if name.startswith(JOB_VARIABLE_PREFIX)
        }
        self.registry = _registry(environ)
        self.batch_file = _path(environ, pod_contract.BATCH_FILE_PATH)
        self.lost_after_s = _number(environ, pod_contract.LOST_AFTER, LOST_AFTER_S)


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
    _check(named, pod_contract.RESULTS, raw, "name at least one path or glob in `from`")
    _check(when in ENDS, pod_contract.RESULTS, raw, f"have one of {', '.join(ENDS)} as `when`")
    folder = environ.get(pod_contract.RESULTS_FOLDER_PATH, pod_contract.RESULTS_FOLDER)
    return ResultsRequest(patterns, when, Path(folder))


def _ports(environ: Mapping[str, str]) -> list[JobPort]:
    raw = environ.get(pod_contract.PORTS) or "[]"
    try:
        return [
            JobPort(
                str(port["name"]), int(port["port"]), int(port["targetPort"]), str(port.get("node") or "")
            )
            for port in json.loads(raw)
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        example = '[{"name": "http", "port": 8080, "targetPort": 8888}]'
        raise PodMisconfigured(f"{pod_contract.PORTS} is {raw!r}: an example is {example}") from error


def _registry(environ: Mapping[str, str]) -> dict[str, str] | None:
    username = environ.get(pod_contract.REGISTRY_USERNAME, "")
    password = environ.get(pod_contract.REGISTRY_PASSWORD, "")
    return {"username": username, "password": password} if username or password else None


def _number(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    value = environ.get(name) or str(otherwise)
    is_number = value.isascii() and value.isdecimal() and int(value[:9])
    _check(is_number, name, value, "be a number from 1 on")
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
    if not environ.get(name):
        raise PodMisconfigured(
            f"{name} is not set: this program runs in a pod that the Red Box operator creates"
        )
    return environ[name]


def _check(valid: object, name: str, value: str, must: str) -> None:
    if not valid:
        raise PodMisconfigured(f"{name} is {value!r}: it must {must}")
