"""Where the volume of a pod's claim is on Slurm's nodes. Pure.

Three kinds of volumes have a path: those that our provisioner made, those below a mount that the SlurmCluster
names in `pods.mounts`, and those whose administrator annotated them. All else is refused by name. A path is
taken from the volume alone, which only cluster administrators and provisioners can write, never from a claim.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from redbox_kube.api.objects import Object
from redbox_resourced.volumes.names import (
    ANNOTATION_ACCOUNT,
    ANNOTATION_PATH,
    ATTRIBUTE_ACCOUNT,
    ATTRIBUTE_CLUSTER,
    ATTRIBUTE_PATH,
    DRIVER,
    PROVISIONED_BY,
    PROVISIONER,
)

SEPARATORS = "/#"  # of parts of a handle
PARTS_OF_PATH = 3
"""Of a handle of csi-driver-nfs or -smb: server#share#folder#uuid#onDelete; the path ends with the folder."""
CURE = (
    "Use a StorageClass of provisioner redbox.dev/directory, or have an administrator add the file system to "
    "pods.mounts of SlurmCluster {cluster} or annotate the volume with redbox.dev/path"
)


class SharedFileSystem(Protocol):
    """An entry of `pods.mounts`: what Kubernetes calls it, and where Slurm's nodes have it."""

    @property
    def server(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def driver(self) -> str: ...
    @property
    def volume_handle(self) -> str: ...
    @property
    def to(self) -> str: ...


class ClaimPending(Exception):
    """The claim has no volume yet."""


class ClaimRefused(Exception):
    """This pod can never use the claim's volume on this cluster; the message says why, and the cure."""


def claim_path(
    pvc: Object, pv: Object | None, cluster: str, mounts: Sequence[SharedFileSystem], account: str
) -> str:
    """The absolute path of a claim's volume on the nodes of a cluster, for a pod of this service account."""
    name = f"claim {pvc['metadata']['name']}"
    if pv is None or not _are_bound(pvc, pv):
        raise ClaimPending(f"{name} is not bound to a volume yet")
    source = pv["spec"]
    if source.get("volumeMode", "Filesystem") != "Filesystem":
        raise ClaimRefused(f"{name} is a block device: Slurm's nodes have no block devices of Kubernetes")
    if source.get("csi", {}).get("driver") == DRIVER:
        return _own_path(name, pv, cluster, account)
    annotated = _annotations(pv).get(ANNOTATION_PATH)
    if annotated is not None:
        return _checked(annotated, f"{name}: redbox.dev/path of its volume {pv['metadata']['name']}")
    for mount in mounts:
        below = _below(mount, source)
        if below is not None:
            path = posixpath.join(mount.to, below) if below else mount.to
            return _checked(path, f"{name}: the place of its volume {pv['metadata']['name']}")
    what = f"a {_kind_of(source)} volume, which the nodes of {cluster} are not said to mount"
    raise ClaimRefused(f"{name} is {what}. {CURE.format(cluster=cluster)}")


def is_read_only(pv: Object | None) -> bool:
    """As kubelets mount it, whatever the pod asks for."""
    spec = (pv or {}).get("spec") or {}
    sources = [source for source in spec.values() if isinstance(source, dict)]
    return "ro" in (spec.get("mountOptions") or ()) or any(source.get("readOnly") for source in sources)


def sub_path(path: str, relative: str) -> str:
    """A mount's subPath (or its expanded subPathExpr) in a volume; the kubelet refuses the same ones."""
    if relative.startswith("/") or ".." in relative.split("/") or "\0" in relative or "\n" in relative:
        raise ClaimRefused(f"subPath {relative[:100]!r} must be relative, without `..`")
    return posixpath.normpath(posixpath.join(path, relative))


def _are_bound(pvc: Object, pv: Object) -> bool:
    """Whether each names the other: a claim alone could name any volume."""
    claim = pv["spec"].get("claimRef") or {}
    return bool(
        pvc["spec"].get("volumeName") == pv["metadata"]["name"]
        and claim.get("uid") == pvc["metadata"]["uid"]
        and claim.get("namespace") == pvc["metadata"]["namespace"]
    )


def _own_path(name: str, pv: Object, cluster: str, account: str) -> str:
    attributes = pv["spec"]["csi"].get("volumeAttributes") or {}
    if _annotations(pv).get(PROVISIONED_BY) != PROVISIONER:
        raise ClaimRefused(
            f"{name}: its volume {pv['metadata']['name']} was not made by Red Box's provisioner"
        )
    if attributes.get(ATTRIBUTE_CLUSTER) != cluster:
        where = attributes.get(ATTRIBUTE_CLUSTER)
        raise ClaimRefused(
            f"{name} is a folder on {where}, and this pod runs on {cluster}: make a claim there"
        )
    owner = attributes.get(ATTRIBUTE_ACCOUNT)
    if owner != account:
        raise ClaimRefused(
            f"{name} is a folder of service account {owner}, and this pod has {account}: use that account, "
            f"or make a claim with the annotation {ANNOTATION_ACCOUNT}: {account}"
        )
    return _checked(attributes.get(ATTRIBUTE_PATH), f"{name}: its volume's path")


def _below(mount: SharedFileSystem, source: Mapping[str, Any]) -> str | None:
    """The rest of the volume's path below the mount; None where it is not below it."""
    nfs, csi = source.get("nfs"), source.get("csi")
    if nfs and mount.server:
        exported, wanted = mount.path.rstrip("/"), str(nfs.get("path", "")).rstrip("/")
        is_below = wanted == exported or wanted.startswith(exported + "/")
        return wanted[len(exported) :].strip("/") if nfs.get("server") == mount.server and is_below else None
    if csi and mount.driver:
        handle, prefix = str(csi.get("volumeHandle", "")), mount.volume_handle
        rest = handle[len(prefix) :]
        folder = "#".join(handle.split("#")[:PARTS_OF_PATH])[len(prefix) :].replace("#", "/").strip("/")
        ends_a_part = not rest or prefix == "" or prefix[-1] in SEPARATORS or rest[0] in SEPARATORS
        is_below = csi.get("driver") == mount.driver and handle.startswith(prefix) and ends_a_part
        return folder if is_below else None
    return None


def _checked(path: object, what: str) -> str:
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path or "\n" in path:
        raise ClaimRefused(f"{what} is not an absolute path")
    if ".." in path.split("/"):
        raise ClaimRefused(f"{what} has `..` in it")
    return posixpath.normpath(path)


def _annotations(body: Object) -> Mapping[str, str]:
    return body["metadata"].get("annotations") or {}


def _kind_of(source: Mapping[str, Any]) -> str:
    """The volume's kind, as its author would call it."""
    if csi := source.get("csi"):
        return str(csi.get("driver"))
    others = {"capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName"}
    others |= {"mountOptions", "volumeMode", "nodeAffinity", "volumeAttributesClassName"}
    return next((key for key in source if key not in others), "foreign")
