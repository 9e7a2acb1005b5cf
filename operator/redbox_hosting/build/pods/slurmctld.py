"""The StatefulSet of slurmctld, its Services and its configuration."""

from __future__ import annotations

from collections.abc import Mapping

from redbox_hosting.api import names
from redbox_hosting.build.pods.parts import (
    BACKUP,
    BACKUPS,
    MODE_KEYS,
    MODE_PROGRAMS,
    OPERATOR_IN_TLS,
    Manifest,
    SlurmCell,
    backup_volume,
    config_source,
    container,
    daemon_container,
    dns,
    key_sources,
    labels,
    memory_volume,
    metadata,
    mount,
    pod_spec,
    restricted_pod,
    selector,
    slurm_probe,
    users_volume,
    with_user_template,
)

ROLE, RESTORE = "slurmctld", "restore"
DEFAULT_SIZE = "4Gi"


def slurmctld_set(cell: SlurmCell) -> Manifest:
    """A StatefulSet of one, whose pod is replaced when its template changes.

    The template has nothing of the configuration, which is applied without a restart. Parallel: in order, a
    pod that never became ready would not be replaced by one of a corrected template.
    """
    own = labels(cell.name, ROLE, cell.name)
    name = names.controller_name(cell.name)
    template = with_user_template(
        cell,
        {
            "metadata": {"labels": own},
            "spec": _pod(cell),
        },
        cell.spec.template,
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(name, cell.namespace, own, cell.owner),
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": selector(cell.name, ROLE, cell.name)},
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "template": template,
            **_claim(cell),
        },
    }


def _pod(cell: SlurmCell) -> Manifest:
    users, users_mount = users_volume(cell)
    sources = [config_source(cell), *key_sources(cell, jwt=True)]
    own = container(
        ROLE,
        cell.image,
        args=[ROLE, "--status-port", str(names.PORT_SUPERVISOR), "--client", OPERATOR_IN_TLS],
        ports=[
            {"name": ROLE, "containerPort": names.PORT_SLURMCTLD},
            {"name": "status", "containerPort": names.PORT_SUPERVISOR},
        ],
        readinessProbe=slurm_probe(cell, names.PORT_SLURMCTLD),
        # The operator reads there why slurmctld refuses its configuration.
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[
            mount("etc", "/etc/slurm", read_only=True),
            mount("state", "/var/spool/slurmctld"),
            mount("run", "/run"),
            mount("tmp", "/tmp"),  # noqa: S108 (a path in the pod)
            mount("tls", "/etc/redbox/tls", read_only=True),
            *users_mount,
        ],
    )
    volumes = [
        {"name": "etc", "projected": {"defaultMode": MODE_PROGRAMS, "sources": sources}},
        memory_volume("run"),
        {"name": "tmp", "emptyDir": {}},
        {
            "name": "tls",
            "secret": {
                "secretName": names.tls_name(names.controller_name(cell.name)),
                "defaultMode": MODE_KEYS,
            },
        },
        *users,
        *_state(cell),
    ]
    return pod_spec(
        [daemon_container(own, cell.spec.slurmctld)],
        [*volumes, *backup_volume(cell)],
        **_restoring(cell),
        security=restricted_pod(names.SLURM_UID),
        serviceAccountName=names.account_name(cell.name, ROLE),
        dnsConfig=dns(cell),
        # Through the Service a client in this pod has the address of its machine, and an allocation that had
        # to wait would be sent there.
        hostAliases=[
            {"ip": "127.0.0.1", "hostnames": [f"{names.controller_address(cell.name)}.{cell.namespace}"]}
        ],
        terminationGracePeriodSeconds=30,
    )


def _restoring(cell: SlurmCell) -> Manifest:
    """The init container that puts the state of a backup back, before slurmctld starts."""
    source = cell.spec.redbox.restore
    if source is None:
        return {}
    own = container(
        RESTORE,
        cell.image,
        args=[RESTORE, f"--first-job-id={source.first_job_id}", f"{BACKUPS}/{source.path}"],
        # The operator reads there why it does not.
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[
            mount(BACKUP, BACKUPS, read_only=True),
            mount("state", "/var/spool/slurmctld"),
            mount("tmp", "/tmp"),  # noqa: S108 (a path in the pod)
        ],
    )
    policy = cell.spec.slurmctld.get("imagePullPolicy")
    return {"initContainers": [{**own, **({"imagePullPolicy": policy} if policy else {})}]}


def _state(cell: SlurmCell) -> list[Manifest]:
    persistence = cell.spec.persistence
    if persistence and not persistence.enabled:
        return [{"name": "state", "emptyDir": {}}]
    if persistence and persistence.existing_claim:
        return [{"name": "state", "persistentVolumeClaim": {"claimName": persistence.existing_claim}}]
    return []


def _claim(cell: SlurmCell) -> Manifest:
    """Kept when the Controller is deleted: it is all that Slurm remembers of its jobs."""
    if _state(cell):
        return {}
    asked = cell.spec.persistence
    spec: Manifest = {
        "accessModes": (asked and asked.access_modes) or ["ReadWriteOnce"],
        "resources": (asked and asked.resources) or {"requests": {"storage": DEFAULT_SIZE}},
    }
    if asked and asked.storage_class_name is not None:
        spec["storageClassName"] = asked.storage_class_name
    if asked and asked.volume_name:
        spec["volumeName"] = asked.volume_name
    own = {"name": "state", "labels": dict(asked.labels) if asked else {}}
    if asked and asked.annotations:
        own["annotations"] = dict(asked.annotations)
    return {
        "volumeClaimTemplates": [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": own, "spec": spec}
        ],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }


def config_maps(cell: SlurmCell, files: Mapping[str, str], digest: str) -> list[Manifest]:
    """The immutable record of this configuration, and the copy that pods mount."""
    own = labels(cell.name, ROLE, cell.name)
    record = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(names.config_name(cell.name, digest), cell.namespace, own, cell.owner),
        "immutable": True,
        "data": dict(files),
    }
    mounted = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **metadata(names.mounted_config_name(cell.name), cell.namespace, own, cell.owner),
            "annotations": {names.ANNOTATION_CONFIG_HASH: digest},
        },
        "data": dict(files),
    }
    return [record, mounted]
