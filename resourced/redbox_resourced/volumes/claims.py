"""Claims and StorageClasses, reduced to what provisioning needs, and which folder a claim asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redbox_kube.api import kinds
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import Object, ResourcePath
from redbox_resourced.volumes.names import (
    ANNOTATION_ACCOUNT,
    DEFAULT_ACCOUNT,
    PARAMETER_CLUSTER,
    PARAMETER_GROUP_SHARED,
    PROVISIONER,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)

WAITS, FILE_SYSTEM = "WaitForFirstConsumer", "Filesystem"
LONGEST_NAME = 253
DEFAULT_CLASS = "volume.beta.kubernetes.io/storage-class"
PARAMETERS = (PARAMETER_CLUSTER, PARAMETER_GROUP_SHARED)


class Unserviceable(Exception):
    """No folder can be made or deleted until somebody changes something; the message says what."""


@dataclass(frozen=True)
class ClaimView:
    """A claim that waits for a volume: of ours, or of another provisioner for the node that was chosen."""

    namespace: str
    name: str
    uid: str
    version: str
    provisioner: str
    class_name: str
    node: str
    """The node that the scheduler chose; empty before that."""
    account: str
    mode: str
    is_copy: bool
    """Of another claim, or of a snapshot."""
    has_selector: bool
    storage: str
    access_modes: tuple[str, ...]

    @property
    def is_ours(self) -> bool:
        return self.provisioner == PROVISIONER

    @property
    def place(self) -> Place:
        return self.namespace, self.name

    @property
    def path(self) -> ResourcePath:
        return ResourcePath(kinds.PERSISTENT_VOLUME_CLAIM, self.name, self.namespace)

    @property
    def volume_name(self) -> str:
        """The name of its volume: the same at every try, so that a claim never gets two."""
        return f"pvc-{self.uid}"


@dataclass(frozen=True)
class StorageClassView:
    """A StorageClass of ours."""

    name: str
    parameters: Mapping[str, str]
    waits: bool
    """For the first pod that uses the claim."""
    reclaim_policy: str
    mount_options: tuple[str, ...]

    @property
    def cluster(self) -> str:
        return self.parameters.get(PARAMETER_CLUSTER, "")

    @property
    def group_shared(self) -> bool:
        return self.parameters.get(PARAMETER_GROUP_SHARED, "false") == "true"


def read_claim(body: Object) -> ClaimView | None:
    """The claim; None unless it waits for our provisioner, or for another one that was given a node."""
    metadata, spec = body["metadata"], body["spec"]
    annotations = metadata.get("annotations") or {}
    provisioner = next((annotations[key] for key in STORAGE_PROVISIONER if key in annotations), "")
    is_of_others = provisioner != PROVISIONER and not (provisioner and annotations.get(SELECTED_NODE))
    if is_of_others or spec.get("volumeName") or metadata.get("deletionTimestamp"):
        return None
    class_name = annotations.get(DEFAULT_CLASS) or spec.get("storageClassName") or ""
    node = annotations.get(SELECTED_NODE, "")
    account = annotations.get(ANNOTATION_ACCOUNT) or DEFAULT_ACCOUNT
    if max(map(len, (provisioner, class_name, node, account))) > LONGEST_NAME:
        return None  # nothing has such a name
    return ClaimView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=str(metadata["resourceVersion"]),
        provisioner=provisioner,
        class_name=class_name,
        node=node,
        account=account,
        mode=spec.get("volumeMode", FILE_SYSTEM),
        is_copy=bool(spec.get("dataSource") or spec.get("dataSourceRef")),
        has_selector=bool(spec.get("selector")),
        storage=spec["resources"]["requests"]["storage"],
        access_modes=tuple(dict.fromkeys(spec["accessModes"])),
    )


def read_class(body: Object) -> StorageClassView | None:
    """The class; None where it is of another provisioner."""
    if body.get("provisioner") != PROVISIONER:
        return None
    return StorageClassView(
        name=body["metadata"]["name"],
        parameters=body.get("parameters") or {},
        waits=body.get("volumeBindingMode") == WAITS,
        reclaim_policy=body.get("reclaimPolicy") or "Delete",
        mount_options=tuple(body.get("mountOptions") or ()),
    )


def check_claim(claim: ClaimView, storage_class: StorageClassView) -> None:
    """Raise Unserviceable for what a folder cannot be."""
    unknown = sorted(set(storage_class.parameters) - set(PARAMETERS))
    if unknown:
        allowed = " and ".join(PARAMETERS)
        problem = f"StorageClass {storage_class.name} has a parameter {unknown[0]}; there are {allowed}"
    elif storage_class.parameters.get(PARAMETER_GROUP_SHARED, "false") not in {"true", "false"}:
        problem = (
            f"parameter {PARAMETER_GROUP_SHARED} of StorageClass {storage_class.name} is not true or false"
        )
    elif storage_class.mount_options:
        problem = (
            f"StorageClass {storage_class.name} has mountOptions, and a folder is not mounted: remove them"
        )
    elif claim.mode != FILE_SYSTEM:
        problem = "a folder is not a block device: leave out volumeMode"
    elif claim.is_copy:
        problem = (
            "a folder cannot be cloned or restored from a snapshot: leave out dataSource, and copy the files"
        )
    elif claim.has_selector:
        problem = "a claim with a selector gets no new volume: leave out the selector"
    else:
        return
    raise Unserviceable(problem)
