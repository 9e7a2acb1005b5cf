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
USER = ("runAsUser", "runAsGroup")
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
    shown = _as_target(pod["spec"], given, target, field)
    program = containers({**pod, "spec": {**pod["spec"], PART: [shown]}}, references, PART, [])[0]
    with refusals_of(field):
        return EphemeralProgram(**dict(program), target=target)


def _as_target(spec: Object, given: Object, target: str | None, field: str) -> Object:
    """With the target's user: only its own user namespace shows its processes, and that has one user."""
    others = [*(spec.get("initContainers") or ()), *spec["containers"]]
    found = next((other for other in others if other["name"] == target), None)
    if found is None:
        return given
    context, of_target = given.get("securityContext") or {}, found.get("securityContext") or {}
    if not any(context.get(name) is not None for name in USER):
        context = {**context, **{name: of_target[name] for name in USER if name in of_target}}
    shown = {**given, "securityContext": context}
    if shown_user(spec, shown, field) != shown_user(spec, found, field):
        raise Unsupported(
            f"{field}.securityContext: with targetContainerName it is shown the user and the group of "
            f"container {target}: leave out runAsUser and runAsGroup"
        )
    return shown
