"""What cannot work as a pod's job, refused before anything is submitted. Pure.

The models have refused what has the wrong form; these are limits of kernels and of Slurm, paths that would
leave their volume, and fields of a request that mean nothing for a pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from redbox.slurm.errors import RequestRefused
from redbox_api.models import JobRequest
from redbox_api.pod_parts import ContainerProgram, PodFile, PodProgram

MAX_FILES_BYTES = 5 << 20
"""Of all volumes: in base64, with the rest of the request, they are within limits.body_bytes (8 MiB)."""
MAX_WORDS_BYTES = 1 << 20
"""Of a container's command and environment: Linux takes 2 MiB of them, the job's own included."""
MAX_WORD_BYTES = 128 * 1024
"""Of one argument, or one variable with its name: Linux's MAX_ARG_STRLEN."""
MAX_NAME_BYTES = 255  # of one part of a path
LEAVES_FOLDER = re.compile(r"(?:\A|/)\.\.(?:/|\Z)")
LEAVES_FOLDER_OR_IS_EMPTY = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)")
LONG_NAME = re.compile(rb"/[^/]{%d}" % (MAX_NAME_BYTES + 1))
VARIABLE_PREFIX = "APPTAINERENV_"
IMAGE = re.compile(r"docker://[^\s@]+(@(?P<digest>.*))?")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
OPTION_NAME = re.compile(r"--([a-z0-9-]+)")
CONTRADICTING = {
    "requeue": "a pod's job is never requeued, since its emptyDirs cannot follow",
    "container": "the pod's containers are started by red-box's runner",
    "container-id": "the pod's containers are started by red-box's runner",
}


def check_pod(request: JobRequest) -> None:
    """RequestRefused, with the field and the cure."""
    pod = request.pod
    if pod is None:
        raise ValueError("this request has no pod")
    _check_request(request)
    for field, container in _containers(pod):
        _check_image(field, container.image)
        _check_words(field, container)
        for mount in container.mounts:
            if not mount.expand_sub_path:  # else the runner checks it, once it is expanded
                _check_path(f"{field}.mounts: the subPath of {mount.mount_path}", mount.sub_path)
    for volume in pod.volumes:
        if volume.files is not None:
            check_files(f"pod.volumes[{volume.name}].files", volume.files.files)
    size = sum(len(file.content) for volume in pod.volumes if volume.files for file in volume.files.files)
    if size > MAX_FILES_BYTES:
        raise RequestRefused(
            f"pod.volumes: their files have {size} bytes together, more than {MAX_FILES_BYTES}: put large "
            "data on a volume that the cluster mounts, and mount that."
        )


def _containers(pod: PodProgram) -> Iterator[tuple[str, ContainerProgram]]:
    for container in pod.init_containers:
        yield f"pod.initContainers[{container.name}]", container
    for container in pod.containers:
        yield f"pod.containers[{container.name}]", container


def _check_request(request: JobRequest) -> None:
    if request.env:
        raise RequestRefused(
            "env: a pod's variables are those of its containers: move them to pod.containers[].env."
        )
    if request.array is not None:
        raise RequestRefused("array: a pod is one job: submit one pod for each index, and leave out array.")
    for option in request.options:
        found = OPTION_NAME.match(option)
        if found is not None and found[1] in CONTRADICTING:
            raise RequestRefused(f"options: leave out --{found[1]}: {CONTRADICTING[found[1]]}.")
    pod = request.pod
    for container in pod.containers if pod is not None else ():
        if container.always_restarts:
            raise RequestRefused(
                f"pod.containers[{container.name}].alwaysRestarts: only an init container can be a sidecar: "
                "move it to pod.initContainers, or use restartPolicy."
            )


def _check_image(field: str, image: str) -> None:
    if image.startswith("/"):
        return
    found = IMAGE.fullmatch(image)
    if found is None:
        hint = f"docker://{image}" if "://" not in image and "@" not in image else "docker://..."
        raise RequestRefused(
            f"{field}.image: {image!r} is neither docker://IMAGE nor the absolute path of a SIF; "
            f"perhaps {hint}."
        )
    if found["digest"] is not None and DIGEST.fullmatch(found["digest"]) is None:
        raise RequestRefused(
            f"{field}.image: {found['digest']!r} is not a digest: write sha256: and 64 hexadecimal digits."
        )


def _check_words(field: str, container: ContainerProgram) -> None:
    """Sizes before $(NAME) is expanded."""
    words = [("command", word) for word in container.command]
    words += [("args", word) for word in container.args or ()]
    words += [("env", f"{VARIABLE_PREFIX}{variable.name}={variable.value}") for variable in container.env]
    sizes = [(name, len(word.encode("utf-8", "replace")) + 1) for name, word in words]
    for name, size in sizes:
        if size > MAX_WORD_BYTES:
            raise RequestRefused(
                f"{field}.{name}: one of them has {size} bytes, and Linux takes {MAX_WORD_BYTES}: "
                "put it into a file of a volume."
            )
    total = sum(size for _, size in sizes)
    if total > MAX_WORDS_BYTES:
        raise RequestRefused(
            f"{field}: command, args and env have {total} bytes together, more than {MAX_WORDS_BYTES}: "
            "put large values into files of a volume."
        )


def check_files(field: str, files: Sequence[PodFile]) -> None:
    """Paths of a volume, or of one source of it."""
    for file in files:
        _check_path(f"{field}: the path", file.path, is_file=True)
        if file.path.startswith(".."):
            raise RequestRefused(f"{field}: {file.path!r} begins with `..`, as kubelets' own names do.")
    paths = sorted((file.path for file in files), key=lambda path: path.replace("/", "\0"))
    for path, following in pairwise(paths):  # what is in a folder follows it
        if path == following:
            raise RequestRefused(f"{field}: two files have the path {path!r}: leave out one of them.")
        if following.startswith(path + "/"):
            raise RequestRefused(
                f"{field}: {path!r} is a file, and the folder of {following!r}: rename one of them."
            )


def _check_path(what: str, path: str, *, is_file: bool = False) -> None:
    """A path in a volume; of a file it has no empty part either."""
    if path.startswith("/") or (LEAVES_FOLDER_OR_IS_EMPTY if is_file else LEAVES_FOLDER).search(path):
        raise RequestRefused(f"{what}, {path!r}, leaves its volume: use a relative path without `..`.")
    if LONG_NAME.search(b"/" + path.encode("utf-8", "replace")):
        raise RequestRefused(f"{what} has a name of more than {MAX_NAME_BYTES} bytes: shorten it.")
