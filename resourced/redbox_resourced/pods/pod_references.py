"""What a pod refers to by name, read from the API server: Secrets, ConfigMaps, claims and their volumes.

Each object is read once, by `get` alone. One that is required and missing is waited for, with the reason that
kubelets give: CreateContainerConfigError for a variable, the event FailedMount for a volume.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from redbox_kube.api.kinds import CONFIG_MAP, PERSISTENT_VOLUME, SECRET, Kind
from redbox_kube.api.kinds import PERSISTENT_VOLUME_CLAIM as CLAIM
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.files.live_sources import AUTHORITY
from redbox_resourced.translation.limits import BYTES_OF_A_VALUE
from redbox_resourced.translation.references import PodReferences
from redbox_resourced.volumes.claim_path import ClaimPending, is_read_only

VALUES = ("data", "binaryData")
OWN_AUTHORITY = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
"""The same CA, where resourced itself has it: no right in the pod's namespace is needed."""
AT_ONCE = 4
"""Each may take 15 MiB until it is counted: 150,000 values without content."""
MOST_OBJECTS = 256
MOST_BYTES = 32 * 1024 * 1024
"""Of one pod's Secrets and ConfigMaps, each value with what it takes beside its content."""


class ReferenceMissing(Exception):
    """The pod waits: `reason` is of its containers, `event` of the event beside it."""

    def __init__(self, reason: str, event: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.event = event


class Reference(NamedTuple):
    """One place in a pod that names an object; with `key`, one value of it. `volume`: which mounts it."""

    kind: Kind
    name: str
    volume: str = ""
    key: str = ""
    optional: bool = False


ClaimResolver = Callable[[Object, Object | None], str]
"""From a claim and its volume to a path; raises ClaimPending or ClaimRefused."""


async def read_references(objects: ObjectClient, pod: Object, path_of: ClaimResolver) -> PodReferences:
    """Raises ReferenceMissing, ClaimRefused and Unsupported."""
    namespace = pod["metadata"]["namespace"]
    references = list(references_of(pod["spec"]))
    wanted = {(reference.kind, reference.name) for reference in references}
    if len(wanted) > MOST_OBJECTS:
        raise Unsupported(
            f"spec: it names {len(wanted)} Secrets, ConfigMaps and claims, and a pod may name "
            f"{MOST_OBJECTS}: put their values into fewer"
        )
    found: dict[tuple[Kind, str], Object] = {}
    length = 0
    places = sorted(wanted, key=str)
    for start in range(0, len(places), AT_ONCE):
        some = places[start : start + AT_ONCE]
        bodies = await asyncio.gather(*(_read(objects, kind, name, namespace) for kind, name in some))
        found |= {place: body for place, body in zip(some, bodies, strict=True) if body is not None}
        length += sum(map(_length, bodies))
        if length > MOST_BYTES:
            raise Unsupported(
                f"spec: its Secrets and ConfigMaps have more than {MOST_BYTES // 1024**2} MiB: put large "
                "files into a claim"
            )
    for reference in references:
        _require(reference, found.get((reference.kind, reference.name)))
    claims = {
        name: await _path_of(objects, claim, path_of)
        for (kind, name), claim in found.items()
        if kind == CLAIM
    }
    return PodReferences(
        secrets={name: body for (kind, name), body in found.items() if kind == SECRET},
        config_maps={name: body for (kind, name), body in found.items() if kind == CONFIG_MAP},
        claims={name: path for name, (path, _) in claims.items()},
        read_only_claims=frozenset(name for name, (_, read_only) in claims.items() if read_only),
    )


def references_of(spec: Object) -> Iterator[Reference]:
    """In the order of the spec."""
    for pull_secret in spec.get("imagePullSecrets") or ():
        if pull_secret.get("name"):
            yield Reference(SECRET, pull_secret["name"], optional=True)  # as kubelets: the pull then fails
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        yield from _of_container(container)
    for volume in spec.get("volumes") or ():
        yield from _of_volume(volume)


def _of_container(container: Object) -> Iterator[Reference]:
    for source in container.get("envFrom") or ():
        for kind, chosen in ((SECRET, source.get("secretRef")), (CONFIG_MAP, source.get("configMapRef"))):
            if chosen and chosen.get("name"):
                yield Reference(kind, chosen["name"], optional=bool(chosen.get("optional")))
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        pairs = ((SECRET, source.get("secretKeyRef")), (CONFIG_MAP, source.get("configMapKeyRef")))
        for kind, chosen in pairs:
            if chosen and chosen.get("name"):
                optional = bool(chosen.get("optional"))
                yield Reference(kind, chosen["name"], key=chosen["key"], optional=optional)


def _of_volume(volume: Object) -> Iterator[Reference]:
    name = volume["name"]
    if claim := volume.get("persistentVolumeClaim"):
        yield Reference(CLAIM, claim["claimName"], name)
    elif volume.get("ephemeral"):
        return  # the translation refuses it
    sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
    for source in sources:
        secret, config_map = source.get("secret"), source.get("configMap")
        for kind, chosen, named in (
            (SECRET, secret, "secretName" if source is volume else "name"),
            (CONFIG_MAP, config_map, "name"),
        ):
            if chosen and chosen.get(named):
                optional = bool(chosen.get("optional"))
                yield Reference(kind, chosen[named], name, optional=optional)
                for item in chosen.get("items") or ():
                    yield Reference(kind, chosen[named], name, item["key"], optional)


async def _read(objects: ObjectClient, kind: Kind, name: str, namespace: str) -> Object | None:
    if (kind, name) == (CONFIG_MAP, AUTHORITY) and (own := await asyncio.to_thread(_own_authority)):
        return {"metadata": {"name": name, "namespace": namespace}, "data": {"ca.crt": own}}
    try:
        body = await objects.get(ResourcePath(kind, name, namespace))
        return None if body is None else _needed_parts(kind, body)
    except ApiRefused as refusal:
        if refusal.status != HTTPStatus.FORBIDDEN:
            raise
        message = (
            f"resourced may not read {kind} {name}: the chart's resourced.pods.namespaces does not list the "
            f"namespace {namespace}"
        )
        raise ReferenceMissing("CreateContainerConfigError", "Failed", message) from refusal


def _needed_parts(kind: Kind, body: Object) -> Object:
    """Without labels, annotations and the like, which tenants write as long as they like."""
    if kind != CLAIM:
        return values_of(body)
    metadata = {name: body["metadata"].get(name) for name in ("name", "namespace", "uid")}
    return {"metadata": metadata, "spec": {"volumeName": (body.get("spec") or {}).get("volumeName")}}


def values_of(body: Object) -> Object:
    """The content of a Secret or ConfigMap, and which version of it this is."""
    metadata = {name: body["metadata"].get(name) for name in ("uid", "resourceVersion")}
    values = {part: body[part] for part in (*VALUES, "immutable") if body.get(part)}
    return {"metadata": metadata, **values}


def _length(body: Object | None) -> int:
    parts = [(body or {}).get(part) or {} for part in VALUES]
    return sum(len(key) + len(value) + BYTES_OF_A_VALUE for part in parts for key, value in part.items())


def _own_authority() -> str:
    try:
        return OWN_AUTHORITY.read_text()
    except OSError:  # outside of a cluster
        return ""


def _require(reference: Reference, found: Object | None) -> None:
    """In the kubelet's words."""
    if reference.optional:
        return
    kind = "secret" if reference.kind == SECRET else "configmap"
    if reference.kind == CLAIM:
        kind = "persistentvolumeclaim"
    if found is None:
        problem = f'{kind} "{reference.name}" not found'
    elif reference.key and not _has_key(found, reference.key):
        problem = f"couldn't find key {reference.key} in {reference.kind} {reference.name}"
    else:
        return
    if reference.volume:
        message = f'MountVolume.SetUp failed for volume "{reference.volume}" : {problem}'
        raise ReferenceMissing("ContainerCreating", "FailedMount", message)
    raise ReferenceMissing("CreateContainerConfigError", "Failed", f"Error: {problem}")


def _has_key(found: Object, key: str) -> bool:
    return any(key in (found.get(part) or ()) for part in VALUES)


async def _path_of(objects: ObjectClient, claim: Object, path_of: ClaimResolver) -> tuple[str, bool]:
    """And whether its volume is read-only."""
    name = (claim.get("spec") or {}).get("volumeName")
    try:
        volume = await objects.get(ResourcePath(PERSISTENT_VOLUME, name)) if name else None
        return path_of(claim, volume), is_read_only(volume)
    except ClaimPending as pending:
        raise ReferenceMissing("ContainerCreating", "FailedMount", str(pending)) from pending
    except ApiRefused as refusal:
        if refusal.status != HTTPStatus.FORBIDDEN:
            raise
        message = f"resourced may not read PersistentVolumes: {refusal}"
        raise ReferenceMissing("ContainerCreating", "FailedMount", message) from refusal
