"""The Job that makes users' homes in their claim.

It is root for one thing, to give a new folder to its user: all that it may do is CHOWN. It has no key, no
token and no network.
"""

from __future__ import annotations

from redbox_hosting.api import names
from redbox_hosting.build.pods.parts import (
    SECURE,
    Manifest,
    SlurmCell,
    container,
    homes_volume,
    labels,
    mount,
    pod_spec,
    users_volume,
)
from redbox_hosting.build.pods.trial import OF_THE_TEMPLATE

ROLE = "homes"
ATTEMPTS = 3
RESOURCES = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"cpu": "1", "memory": "256Mi"},
}


def homes_job(cell: SlurmCell, name: str, users: str) -> Manifest:
    """`users`: the digest of those whose homes it makes."""
    volumes = [*users_volume(cell)[0], *homes_volume(cell)[0]]
    policy = cell.spec.slurmctld.get("imagePullPolicy")
    own = container(
        ROLE,
        cell.image,
        args=[ROLE, "--digest", users],
        resources=RESOURCES,
        # The operator reads there what was made, and what stands in the way.
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[mount("users", "/etc/redbox/users", read_only=True), mount("homes", "/home")],
        **({"imagePullPolicy": policy} if policy else {}),
    )
    own["securityContext"] = {**SECURE, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}
    spec = pod_spec(
        [own],
        volumes,
        security={"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        serviceAccountName=names.account_name(cell.name, "slurmctld"),
        restartPolicy="Never",
    )
    template = cell.spec.template.get("spec") or {}
    spec |= {key: template[key] for key in OF_THE_TEMPLATE if template.get(key)}
    own_labels = labels(cell.name, ROLE, cell.name)
    return {
        "kind": "Job",
        "metadata": {"name": name, "labels": own_labels},
        "spec": {"backoffLimit": ATTEMPTS, "template": {"metadata": {"labels": own_labels}, "spec": spec}},
    }
