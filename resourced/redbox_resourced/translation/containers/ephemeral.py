"""A container that `kubectl debug` adds to a pod that runs."""

from __future__ import annotations

from redbox_api.pod_parts import EphemeralProgram
from redbox_clusters.slurm_cluster import PodUsers
from redbox_kube.api.objects import Object
from redbox_resourced.translation.containers.programs import containers
from redbox_resourced.translation.containers.users import shown_user
from redbox_resourced.translation.errors import Unsupported, refusals_of
from redbox_resourced.translation.fields.container_table import EPHEMERAL
from redbox_resourced.translation.fields.rules import check_fields, honoured
from redbox_resourced.translation.references import PodReferences

PART = "ephemeralContainers"
TABLE = {"spec": honoured("", {PART: honoured("", EPHEMERAL)})}


def alone(pod: Object, name: str) -> Object:
    """The pod with this one ephemeral container."""
    chosen = [given for given in pod["spec"].get(PART) or () if given["name"] == name]
    return {**pod, "spec": {**pod["spec"], PART: chosen}}


def needs_of(pod: Object) -> Object:
    """Of `alone`, without what only the others refer to; whether a claim may be written counts."""
    claims = [each for each in pod["spec"].get("volumes") or () if each.get("persistentVolumeClaim")]
    spec = {**pod["spec"], "volumes": claims, "imagePullSecrets": [], "initContainers": []}
    return {**pod, "spec": {**spec, "containers": pod["spec"][PART]}}


def ephemeral_program(pod: Object, references: PodReferences, users: PodUsers) -> EphemeralProgram:
    """Of `alone`. Raises Unsupported."""
    given = pod["spec"][PART][0]
    check_fields({"spec": {PART: [given]}}, TABLE, users)
    field, target = f"spec.{PART}[{given['name']}]", given.get("targetContainerName") or None
    program = containers(pod, references, PART, [])[0]
    if target is not None:
        _check_user(pod["spec"], given, target, field)
    with refusals_of(field):
        return EphemeralProgram(**dict(program), target=target)


def _check_user(spec: Object, given: Object, target: str, field: str) -> None:
    """Only the target's own user namespace shows its processes, and that has one user."""
    others = [*(spec.get("initContainers") or ()), *spec["containers"]]
    found = next((other for other in others if other["name"] == target), None)
    if found is not None and shown_user(spec, given, field) != shown_user(spec, found, field):
        raise Unsupported(
            f"{field}.securityContext: with targetContainerName it is shown the user and the group of "
            f"container {target}: leave out runAsUser and runAsGroup"
        )
