"""Parts that the pods of all daemons share: the cluster, labels, security contexts, volumes, containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redbox_hosting.api import names
from redbox_hosting.api.controller import ControllerSpec
from redbox_hosting.api.fields import Profile
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.pods.merge import strategic_merge
from redbox_hosting.build.pods.pod_security import check_plain, places_of

Manifest = dict[str, Any]
OPERATOR_IN_TLS = "redbox-hosting"
"""The name in the operator's client certificate."""
SECURE: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
BACKUP, BACKUPS = "backup", "/backup"
MODE_KEYS, MODE_OWNER, MODE_PROGRAMS = 0o440, 0o400, 0o555
"""Files of a configuration may be programs: slurmctld runs PrologSlurmctld from there."""


@dataclass(frozen=True, slots=True)
class SlurmCell:
    """One cluster as its builders see it."""

    name: str
    namespace: str
    uid: str
    spec: ControllerSpec
    image: str
    release: SlurmRelease

    @property
    def address(self) -> str:
        """Of slurmctld, for daemons and clients."""
        external = self.spec.external_config
        if external:
            return f"{external.host}:{external.port}"
        return f"{names.controller_address(self.name)}:{names.PORT_SLURMCTLD}"

    @property
    def has_munge(self) -> bool:
        """Its daemons trust munge, and have no key of Slurm."""
        return self.spec.redbox.munge is not None

    @property
    def owner(self) -> Manifest:
        return owner_reference("Controller", self.name, self.uid)


def owner_reference(kind: str, name: str, uid: str) -> Manifest:
    """Of the object that another one is made for."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def labels(cluster: str, role: str, instance: str) -> dict[str, str]:
    """`instance` is the name of the object that it is made for."""
    return {
        "app.kubernetes.io/name": role,
        "app.kubernetes.io/instance": instance,
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/managed-by": "redbox-hosting",
        names.LABEL_CLUSTER: cluster,
        names.LABEL_ROLE: role,
    }


def selector(cluster: str, role: str, instance: str) -> dict[str, str]:
    """The part of the labels that selects pods and never changes."""
    return {
        names.LABEL_CLUSTER: cluster,
        names.LABEL_ROLE: role,
        "app.kubernetes.io/instance": instance,
    }


def metadata(name: str, namespace: str, own: Mapping[str, str], owner: Manifest) -> Manifest:
    """Of an object that is not a pod's template."""
    return {"name": name, "namespace": namespace, "labels": dict(own), "ownerReferences": [owner]}


def restricted_pod(uid: int, gid: int | None = None) -> Manifest:
    """The security context of a pod that runs as one account."""
    group = uid if gid is None else gid
    return {
        "runAsNonRoot": True,
        "runAsUser": uid,
        "runAsGroup": group,
        "fsGroup": group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pod_spec(
    containers: list[Manifest], volumes: list[Manifest], *, security: Manifest, **more: object
) -> Manifest:
    """A pod that has no token of Kubernetes and no variables of other Services."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security,
        "containers": containers,
        "volumes": volumes,
        **more,
    }


def container(name: str, image: str, **more: object) -> Manifest:
    """Without privileges, and with a root file system that cannot be written."""
    return {"name": name, "image": image, "securityContext": SECURE, **more}


def daemon_container(own: Manifest, user: Manifest) -> Manifest:
    """The container of a daemon with the user's fields merged in; its name stays."""
    return {**strategic_merge(own, user), "name": own["name"]}


def with_user_template(cell: SlurmCell, template: Manifest, user: Manifest) -> Manifest:
    """The pod `template` with a user's template merged in; the operator's labels stay.

    Raises BeyondPlain where the user's fields, those of containers included, ask for more than the profile.
    """
    given = {key: value for key, value in user.get("spec", {}).items() if key != "hostname"}
    metadata_of_user = user.get("metadata", {})
    own = template["metadata"]
    made = {
        key: {**metadata_of_user.get(key, {}), **own.get(key, {})}
        for key in ("labels", "annotations")
        if metadata_of_user.get(key) or own.get(key)
    }
    spec = strategic_merge(template["spec"], given)
    if cell.spec.redbox.profile is Profile.PLAIN:
        check_plain(own["labels"][names.LABEL_ROLE], spec, places_of(template["spec"]))
    return {**template, "metadata": {**own, **made}, "spec": spec}


def memory_volume(name: str) -> Manifest:
    """Sockets and pid files; small, and gone with the pod."""
    return {"name": name, "emptyDir": {"medium": "Memory"}}


def key_sources(cell: SlurmCell, *, jwt: bool, mode: int = MODE_KEYS) -> list[Manifest]:
    """slurm.key or slurm.jwks and, where tokens are verified, jwt.key: sources of a projected volume."""
    own = names.keys_name(cell.name)
    slurm, token = cell.spec.slurm_key_ref, cell.spec.jwt_key
    sources = [
        _key(slurm.name, slurm.key, "slurm.key", mode)
        if slurm
        else _key(own, "slurm.jwks", "slurm.jwks", mode)
    ]
    if jwt:
        sources.append(
            _key(token.name, token.key, "jwt.key", mode) if token else _key(own, "jwt.key", "jwt.key", mode)
        )
    if jwt and (public := cell.spec.jwks_key_ref):
        items = [{"key": public.key, "path": "jwks.json", "mode": mode}]
        sources.append({"configMap": {"name": public.name, "items": items}})
    return sources


def _key(secret: str, key: str, path: str, mode: int) -> Manifest:
    return {"secret": {"name": secret, "items": [{"key": key, "path": path, "mode": mode}]}}


def config_source(cell: SlurmCell) -> Manifest:
    """The files of /etc/slurm that the operator writes."""
    return {"configMap": {"name": names.mounted_config_name(cell.name)}}


def users_volume(cell: SlurmCell) -> tuple[list[Manifest], list[Manifest]]:
    """Volume and mount of the cluster's users; none where the image's are used."""
    users = cell.spec.redbox.users
    if users is None or users.config_map_ref is None:
        return [], []
    volume = {"name": "users", "configMap": {"name": names.users_name(cell.name)}}
    return [volume], [{"name": "users", "mountPath": "/var/lib/extrausers", "readOnly": True}]


def backup_volume(cell: SlurmCell) -> list[Manifest]:
    """The volume of the backup that the cluster begins with; none of any other one."""
    source = cell.spec.redbox.restore
    claim = {"claimName": source.claim_name, "readOnly": True} if source else {}
    return [{"name": BACKUP, "persistentVolumeClaim": claim}] if claim else []


def homes_volume(cell: SlurmCell) -> tuple[list[Manifest], list[Manifest]]:
    """Volume and mount of users' homes; none where they are elsewhere."""
    homes = cell.spec.redbox.homes
    if homes is None:
        return [], []
    volume = {"name": "homes", "persistentVolumeClaim": {"claimName": homes.claim_name}}
    return [volume], [mount("homes", "/home")]


def mount(name: str, path: str, *, read_only: bool = False) -> Manifest:
    """A volume in a container."""
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}


def slurm_probe(cell: SlurmCell, port: int) -> Manifest:
    """Readiness of slurmctld, by its own word where the release has it."""
    if not cell.release.has_metrics:
        return tcp_probe(port)
    return {"httpGet": {"path": "/readyz", "port": port}, "periodSeconds": 2}


def tcp_probe(port: int) -> Manifest:
    """Readiness of a daemon that listens once it is ready."""
    return {"tcpSocket": {"port": port}, "periodSeconds": 2}


def dns(cell: SlurmCell) -> Manifest:
    """Slurm and MPI use bare host names of workers, and slurmctld those of the pods that srun runs in."""
    services = (names.workers_name(cell.name), names.logins_name(cell.name))
    return {"searches": [f"{service}.{cell.namespace}.svc.cluster.local" for service in services]}
