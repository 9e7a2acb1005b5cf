"""The programs of a pod: its containers, init containers and sidecars."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain

from redbox_api.pod_parts import ContainerProgram, PodEnv, PodMount
from redbox_kube.api.objects import Object
from redbox_resourced.translation.containers.environment import environment
from redbox_resourced.translation.containers.handlers import hook, probe
from redbox_resourced.translation.containers.images import complete_image, pull_policy
from redbox_resourced.translation.containers.ports import declared_ports
from redbox_resourced.translation.containers.users import shown_user
from redbox_resourced.translation.errors import Unsupported, refusals_of
from redbox_resourced.translation.files.volumes import read_only_volumes
from redbox_resourced.translation.quantities import ceil, parse_quantity
from redbox_resourced.translation.references import PodReferences

PATHS = {
    "always_restarts": "restartPolicy",
    "memory_limit": "resources.limits.memory",
    "message_path": "terminationMessagePath",
    "mounts": "volumeMounts",
    "pull_policy": "imagePullPolicy",
    "run_as_group": "securityContext.runAsGroup",
    "run_as_user": "securityContext.runAsUser",
    "shown_image": "image",
    "stdin_once": "stdinOnce",
    "stop_signal": "lifecycle.stopSignal",
    "working_dir": "workingDir",
}
"""Of Kubernetes, by the field of the request."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (no file is made there)
MOUNT_PATHS = {"mount_path": "mountPath", "sub_path": "subPath", "volume": "name"}


def containers(
    pod: Object, references: PodReferences, part: str, first_env: list[PodEnv]
) -> list[ContainerProgram]:
    """Those of `containers` or of `initContainers`; the container's own variables replace `first_env`."""
    found = []
    for given in pod["spec"].get(part) or ():
        field = f"spec.{part}[{given['name']}]"
        with refusals_of(field, {ours: f"{field}.{theirs}" for ours, theirs in PATHS.items()}):
            found.append(_container(pod, given, references, first_env, field=field))
    return found


def _container(
    pod: Object, given: Object, references: PodReferences, first_env: list[PodEnv], *, field: str
) -> ContainerProgram:
    if given.get("restartPolicy") and not field.startswith("spec.init"):
        raise Unsupported(f"{field}.restartPolicy: only init containers have one: use the pod's")
    image = given.get("image") or ""
    lifecycle, budget = given.get("lifecycle") or {}, references.budget
    user = shown_user(pod["spec"], given, field)
    return ContainerProgram(
        name=given["name"],
        image=complete_image(image, f"{field}.image"),
        shown_image=image,
        pull_policy=pull_policy(image, given.get("imagePullPolicy"), f"{field}.imagePullPolicy"),
        command=given.get("command") or [],
        args=given.get("args"),
        working_dir=given.get("workingDir") or "",
        env=[*first_env, *environment(pod, given, references, field)],
        mounts=_mounts(pod, given, references, field),
        ports=declared_ports(given, field),
        always_restarts=given.get("restartPolicy") == "Always",
        stdin=bool(given.get("stdin")),
        stdin_once=bool(given.get("stdinOnce")),
        tty=bool(given.get("tty")),
        startup_probe=probe(given.get("startupProbe"), given, f"{field}.startupProbe", budget),
        liveness_probe=probe(given.get("livenessProbe"), given, f"{field}.livenessProbe", budget),
        readiness_probe=probe(given.get("readinessProbe"), given, f"{field}.readinessProbe", budget),
        post_start=hook(lifecycle.get("postStart"), given, f"{field}.lifecycle.postStart"),
        pre_stop=hook(lifecycle.get("preStop"), given, f"{field}.lifecycle.preStop"),
        stop_signal=lifecycle.get("stopSignal"),
        memory_limit=_memory_limit(given, field),
        default_seccomp=_has_default_seccomp(pod["spec"], given),
        read_only_root=bool((given.get("securityContext") or {}).get("readOnlyRootFilesystem")),
        run_as_user=user.user,
        run_as_group=user.group,
        message_path=given.get("terminationMessagePath") or "/dev/termination-log",
        message_from_logs=given.get("terminationMessagePolicy") == "FallbackToLogsOnError",
    )


def _mounts(pod: Object, given: Object, references: PodReferences, field: str) -> list[PodMount]:
    read_only, users = read_only_volumes(pod, references), _volume_users(pod["spec"])
    found = []
    for mount in given.get("volumeMounts") or ():
        where = f"{field}.volumeMounts[{mount['name']}]"
        with refusals_of(where, {ours: f"{where}.{theirs}" for ours, theirs in MOUNT_PATHS.items()}):
            found.append(_mount(mount, read_only))
            _check_shared_memory(pod["spec"], mount, users, where)
    return found


def _mount(mount: Object, read_only: Collection[str]) -> PodMount:
    return PodMount(
        volume=mount["name"],
        mount_path=f"/{mount['mountPath'].removeprefix('/')}",
        sub_path=mount.get("subPathExpr") or mount.get("subPath") or "",
        expand_sub_path=bool(mount.get("subPathExpr")),
        read_only=bool(mount.get("readOnly")) or mount["name"] in read_only,
    )


def _check_shared_memory(spec: Object, mount: Object, users: Mapping[str, int], where: str) -> None:
    """Raises Unsupported for a volume at /dev/shm that would be more than the container's own memory."""
    if posixpath.normpath(mount["mountPath"]) != SHARED_MEMORY:
        return
    volume: Object = next((each for each in spec.get("volumes") or () if each["name"] == mount["name"]), {})
    if volume.get("emptyDir") is None or mount.get("subPath") or mount.get("subPathExpr"):
        raise Unsupported(
            f"{where}.mountPath: {SHARED_MEMORY} is the container's own: only a whole emptyDir can be there, "
            "mount this volume at another path"
        )
    if users[mount["name"]] > 1:
        raise Unsupported(
            f"{where}.mountPath: each container has a {SHARED_MEMORY} of its own and shares it with no "
            "other: mount an emptyDir of medium Memory at another path of both"
        )


def _volume_users(spec: Object) -> Counter[str]:
    """How many containers mount each volume."""
    containers = (*(spec.get("initContainers") or ()), *spec["containers"])
    mounted = ({mount["name"] for mount in given.get("volumeMounts") or ()} for given in containers)
    return Counter(chain.from_iterable(mounted))


def _has_default_seccomp(spec: Object, given: Object) -> bool:
    """By the container's own profile, else the pod's."""
    contexts = (given.get("securityContext") or {}, spec.get("securityContext") or {})
    profiles = (context.get("seccompProfile") or {} for context in contexts)
    return next((profile["type"] for profile in profiles if profile.get("type")), "") == "RuntimeDefault"


def _memory_limit(given: Object, field: str) -> int | None:
    limit = ((given.get("resources") or {}).get("limits") or {}).get("memory")
    if limit is None:
        return None
    return ceil(parse_quantity(limit, f"{field}.resources.limits.memory")) or None
