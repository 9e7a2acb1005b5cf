"""The pod in which a new configuration is tried: nothing of the cluster but its image and its place."""

from __future__ import annotations

from redbox_hosting.api import names
from redbox_hosting.build.pods.parts import (
    MODE_PROGRAMS,
    Manifest,
    SlurmCell,
    container,
    labels,
    mount,
    pod_spec,
    restricted_pod,
)

ROLE = "trial"
LONGEST_S = 120
"""With the pull of the image."""
RESOURCES = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"cpu": "2", "memory": "512Mi", "ephemeral-storage": "1Gi"},
}
OF_THE_TEMPLATE = (
    *("affinity", "imagePullSecrets", "nodeSelector", "priorityClassName", "runtimeClassName"),
    *("schedulerName", "serviceAccountName", "tolerations"),
)
"""Where slurmctld may run, so may the trial."""


def trial_pod(cell: SlurmCell, digest: str) -> Manifest:
    """It has no key, no token, no network, and ends by itself; its end is the result."""
    folders = {"etc": "/etc/slurm", "run": "/run", "spool": "/var/spool", "tmp": "/tmp"}  # noqa: S108 (a pod's)
    policy = cell.spec.slurmctld.get("imagePullPolicy")
    own = container(
        ROLE,
        cell.image,
        args=[ROLE],
        resources=RESOURCES,
        volumeMounts=[
            mount("configuration", "/etc/redbox/configuration", read_only=True),
            *(mount(name, path) for name, path in folders.items()),
        ],
        **({"imagePullPolicy": policy} if policy else {}),
    )
    record = {"name": names.config_name(cell.name, digest), "defaultMode": MODE_PROGRAMS}
    volumes: list[Manifest] = [
        {"name": "configuration", "configMap": record},
        *({"name": name, "emptyDir": {"sizeLimit": "256Mi"}} for name in folders),
    ]
    template = cell.spec.template.get("spec") or {}
    spec = pod_spec(
        [own],
        volumes,
        security=restricted_pod(names.SLURM_UID),
        serviceAccountName=names.account_name(cell.name, "slurmctld"),
        hostname=ROLE,
        restartPolicy="Never",
        activeDeadlineSeconds=LONGEST_S,
        terminationGracePeriodSeconds=1,
    )
    spec |= {key: template[key] for key in OF_THE_TEMPLATE if template.get(key)}
    own_labels = labels(cell.name, ROLE, cell.name)
    name = names.trial_name(cell.name, digest)
    return {"kind": "Pod", "metadata": {"name": name, "labels": own_labels}, "spec": spec}
