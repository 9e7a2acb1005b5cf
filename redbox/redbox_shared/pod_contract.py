"""Variables, files and programs of a job's pod: what operator, companion, resourced and plugin agree on."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

COMPANION_CONTAINER = "companion"
COMPANION_PROGRAM = "redbox-companion"
EXEC, SHELL = "exec", "shell"
"""Of that program, each with --node and --task: a command in the job, and a shell.

On a virtual node, where no companion runs, the kubelet takes them.
"""
LOGIN_SHELL = ("/bin/sh", "-c", 'if [ -x "$SHELL" ]; then exec "$SHELL" -l; fi; exec /bin/sh')

ENDPOINT = "REDBOX_ENDPOINT"
KEY = "REDBOX_KEY"
ATTEMPT = "REDBOX_ATTEMPT"
MODE = "REDBOX_MODE"
CA_FILE_PATH = "REDBOX_CA_FILE"
TOKEN_FILE_PATH = "REDBOX_TOKEN_FILE"  # noqa: S105 (a variable's name)
REQUEST_FILE_PATH = "REDBOX_REQUEST_FILE"
BATCH_FILE_PATH = "REDBOX_BATCH_FILE"
TERMINATION_FILE_PATH = "REDBOX_TERMINATION_FILE"
REGISTRY_USERNAME = "REDBOX_REGISTRY_USERNAME"
REGISTRY_PASSWORD = "REDBOX_REGISTRY_PASSWORD"  # noqa: S105 (a variable's name)
RESULTS = "REDBOX_RESULTS"
RESULTS_FOLDER_PATH = "REDBOX_RESULTS_FOLDER"
LOST_AFTER = "REDBOX_LOST_AFTER"
PORTS = "REDBOX_PORTS"
READINESS_PORT = "REDBOX_READINESS_PORT"
JOB_VARIABLE_PREFIX = "REDBOX_ENV_"
"""Before the name of a variable of the job's own environment whose value only the kubelet knows."""

WHOLE, SUBMIT_ONLY, HELPER = "whole", "submit-only", "helper"
ATTACH_ONLY = "attach-only"
"""In a pod on a virtual node, which has no companion: another pod, which has a kubelet, submits its job."""

DEFAULT_READINESS_PORT = 10282
"""Where the companion of a job with ports answers the kubelet's readiness probe."""

REQUEST_FOLDER = "/etc/redbox/job"
REQUEST_FILE = "request.json"
CA_FILE = "ca.crt"
TOKEN_FOLDER = "/var/run/secrets/redbox"  # noqa: S105 (a folder)
TOKEN_FILE = "token"  # noqa: S105 (a file's name)
BATCH_FOLDER = "/etc/redbox/batch"
BATCH_FILE = "batch"
RESULTS_FOLDER = "/results"
DEFAULT_REQUEST_FILE = f"{REQUEST_FOLDER}/{REQUEST_FILE}"
DEFAULT_TOKEN_FILE = f"{TOKEN_FOLDER}/{TOKEN_FILE}"


def sessions_address(environ: Mapping[str, str]) -> str:
    """Where the companion takes sessions, in its pod's network: the programs of its own container alone."""
    return f"\0redbox-companion-{environ.get(KEY)}-{environ.get(ATTEMPT, '1')}"
