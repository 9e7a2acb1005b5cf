"""munged in the pod of a worker, for a site whose slurmctld trusts munge.

It is a sidecar of its own: only it has the key, and it outlives slurmd, which asks slurmctld while it ends.
"""

from __future__ import annotations

from redbox_hosting.api import names
from redbox_hosting.build.pods.parts import (
    SECURE,
    Manifest,
    SlurmCell,
    container,
    memory_volume,
    mount,
)

FOLDER = "/etc/redbox/munge"
MODE_MUNGED = 0o444
"""The volume is in its container alone, and the pod has no group that both accounts are in."""
SOCKET = "/run/redbox/munge/munge.socket.2"


def munge_volumes(cell: SlurmCell) -> list[Manifest]:
    """The key for munged alone, and the folder of its socket, which slurmd mounts read-only.

    So no job can put another socket there, which would say of any credential that root has made it.
    """
    munge = cell.spec.redbox.munge
    assert munge is not None  # noqa: S101 (the caller has asked)
    items = [{"key": munge.key_ref.key, "path": "munge.key"}]
    key = {"secretName": munge.key_ref.name, "items": items, "defaultMode": MODE_MUNGED}
    return [{"name": "munge-key", "secret": key}, memory_volume("munge"), memory_volume("munge-run")]


def munged(cell: SlurmCell) -> Manifest:
    """It starts before slurmd and is ended after it."""
    made = container(
        "munged",
        cell.image,
        args=["munged", "--socket", SOCKET],
        restartPolicy="Always",
        startupProbe={"exec": {"command": ["test", "-S", SOCKET]}, "periodSeconds": 1},
        volumeMounts=[
            mount("munge-key", FOLDER, read_only=True),
            mount("munge-run", "/run"),
            mount("munge", "/run/redbox/munge"),
        ],
    )
    user = {"runAsNonRoot": True, "runAsUser": names.SLURM_UID, "runAsGroup": names.SLURM_UID}
    return {**made, "securityContext": {**SECURE, **user}}
