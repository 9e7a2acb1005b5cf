"""Every name that others may meet: groups, kinds, labels, annotations, paths in the companion's pod."""

from __future__ import annotations

from redbox_kube.names import GROUP

FIELD_MANAGER = "redbox-operator"
FINALIZER = f"{GROUP}/slurm-job"

COMPANION_CONTAINER = "companion"
REQUEST_FOLDER = "/etc/redbox/job"
REQUEST_FILE = "request.json"
CA_FILE = "ca.crt"
TOKEN_FOLDER = "/var/run/secrets/redbox"  # noqa: S105 (a folder)
TOKEN_FILE = "token"  # noqa: S105 (a file's name)
ENV_PREFIX = "REDBOX_ENV_"


def pod_name(slurmjob: str) -> str:
    """What users read logs from: `kubectl logs NAME-job`."""
    return f"{slurmjob}-job"
