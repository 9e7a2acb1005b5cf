"""A container as a batch script: Apptainer's or Singularity's command line, whichever the node has. Pure.

Words of the request are quoted, never interpreted: what was asked for arrives as argv in the container. Its
env does not pass through the script at all: it is in the job's environment under the names that the runtime
hands on (APPTAINERENV_X), so that a PATH for the container is not the node's. Images are pulled once a user
into a cache, under a lock; credentials are read from a file that only the job's user can read, and which is
removed after the pull.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redbox.slurm.errors import RequestRefused
from redbox_api.job_parts import Container, ContainerOptions, RegistryCredentials, Resources
from redbox_api.models import JobRequest

PULLED = ("docker://", "library://", "oras://", "http://", "https://")
WITH_CREDENTIALS = ("docker://", "oras://")
WITH_TAGS = ("docker://", "oras://", "library://")
RUNTIME_SETTING = re.compile(r"(?:APPTAINER|SINGULARITY)_")
HANDED_ON = ("APPTAINERENV_", "SINGULARITYENV_")
CREDENTIAL_NAMES = ("APPTAINER_DOCKER", "SINGULARITY_DOCKER")
FLAGS = {
    "clean_env": "--cleanenv",
    "contain": "--contain",
    "fake_root": "--fakeroot",
    "ipc": "--ipc",
    "pid": "--pid",
    "no_privs": "--no-privs",
    "writable": "--writable",
}
GPUS = {"nvidia": "--nv", "rocm": "--rocm"}
GPUS_GIVEN = {"nvidia": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"}  # by Slurm, to each task
NO_RUNTIME, NO_IMAGE = 127, 125


@dataclass(frozen=True, slots=True)
class ContainerPaths:
    """Where a container job's script finds what it needs; all absolute."""

    image_cache: str
    credentials: str | None = None  # the file that `credentials_file` is written to
    setup: str = ""  # the administrator's own lines: module load apptainer
    keep_days: int = 0  # images unused for longer are removed; 0: none is


def build_container_script(request: JobRequest, places: ContainerPaths) -> str:
    """The batch script of a container request; raises RequestRefused for what cannot work."""
    container = request.container
    if container is None:
        raise ValueError("this request has no container")
    _check(container)
    parts = [
        "#!/bin/sh",
        "# Made by red-box from a container request.",
        *([places.setup.rstrip("\n")] if places.setup else []),
        *_find_runtime(),
        *(_pull(container, places) if is_pulled(container.image) else [f"image={quote(container.image)}"]),
        *_run(container, request.resources),
    ]
    return "\n".join(parts) + "\n"


def container_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The request's env under the names that the runtime hands on; its own settings as they are."""
    names: dict[str, str] = {"APPTAINER_NO_EVAL": "1", "SINGULARITY_NO_EVAL": "1"}
    for name, value in env.items():
        if RUNTIME_SETTING.match(name):
            names[name] = value
        else:
            names.update({prefix + name: value for prefix in HANDED_ON})
    return names


def credentials_file(registry: RegistryCredentials) -> bytes:
    """What the script reads: assignments, so that any character of a password arrives."""
    values = {"USERNAME": registry.username, "PASSWORD": registry.password.get_secret_value()}
    lines = [
        f"{prefix}_{name}={shlex.quote(value)}; export {prefix}_{name}\n"
        for name, value in values.items()
        for prefix in CREDENTIAL_NAMES
    ]
    return "".join(lines).encode()


def is_pulled(image: str) -> bool:
    return image.startswith(PULLED)


def quote(word: str) -> str:
    """One word of sh; a carriage return stands outside, lest sbatch take the script for a DOS file."""
    return shlex.quote(word).replace("\r", "'\"$cr\"'")


def pulls_always(image: str) -> bool:
    """As Kubernetes: an image without tag, or with the tag latest, is asked for again by each job."""
    if "@sha256:" in image or not image.startswith(WITH_TAGS):
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")


def _check(container: Container) -> None:
    image, options = container.image, container.options
    if not is_pulled(image) and not image.startswith("/"):
        hint = f"docker://{image}" if "://" not in image else "docker://..."
        raise RequestRefused(
            f"container.image: {image!r} is neither an absolute path nor one of {', '.join(PULLED)}; "
            f"perhaps {hint}."
        )
    if container.registry is not None and not image.startswith(WITH_CREDENTIALS):
        raise RequestRefused(
            f"container.registry: credentials can only be used with {' and '.join(WITH_CREDENTIALS)}."
        )
    if options.clean_env and options.mpi is not None:
        raise RequestRefused(
            "container.options: cleanEnv takes away what MPI's ranks find each other by: each would be "
            "rank 0 of 1. Leave one of cleanEnv and mpi out."
        )


def _find_runtime() -> list[str]:
    return [
        "cr=$(printf '\\r')",
        "runtime=$(command -v apptainer || command -v singularity) || {",
        '    echo "red-box: neither apptainer nor singularity is in PATH on $(uname -n): $PATH" >&2',
        f"    exit {NO_RUNTIME}",
        "}",
    ]


def _pull(container: Container, places: ContainerPaths) -> list[str]:
    key = hashlib.sha256(container.image.encode()).hexdigest()
    credentials = places.credentials
    lines = [
        f"source={quote(container.image)}",
        f"cache={quote(places.image_cache)}",
        f'image="$cache/{key}.sif"',
    ]
    if credentials is not None:
        lines += [
            f"credentials={quote(credentials)}",
            'forget() { rm -f -- "$credentials"; rmdir -- "${credentials%/*}" 2>/dev/null; }',
            "trap forget EXIT",
            "trap 'exit 143' HUP INT TERM",
        ]
    lines += [
        "pull() {",
        *_pull_function(container, with_credentials=credentials is not None),
        "}",
        *_forget_unused(places.keep_days),
        '( umask 077 && mkdir -p -- "$cache" && pull && forget_unused ) || {',
        '    echo "red-box: the image $source could not be pulled" >&2',
        f"    exit {NO_IMAGE}",
        "}",
    ]
    if credentials is not None:
        lines += ["forget", "trap - EXIT HUP INT TERM"]
    return lines


def _pull_function(container: Container, *, with_credentials: bool) -> list[str]:
    """One at a time for an image and user; written beside its place and renamed when it is whole.

    It runs in a subshell, whose traps are its own: a job that is cancelled while it pulls leaves no part.
    """
    lines = [
        '    exec 9>"$image.lock"',
        "    ! command -v flock >/dev/null || flock 9",
    ]
    if not pulls_always(container.image):
        lines.append('    if [ -e "$image" ]; then touch -c -- "$image"; return 0; fi')
    if with_credentials:
        lines += [
            '    if [ -r "$credentials" ]; then . "$credentials"',
            "    # Without them another task of this array, or an earlier run, has pulled it.",
            '    elif [ -e "$image" ]; then return 0; fi',
        ]
    if container.options.allow_unsigned:  # Apptainer has no such option: there it is the rule
        lines.append(
            '    case $("$runtime" pull --help 2>&1) in *--allow-unsigned*) set -- --allow-unsigned ;; esac'
        )
    lines += [
        '    part="$image.${SLURM_JOB_ID:-0}.$$"',
        "    trap 'rm -f -- \"$part\"' EXIT",
        "    trap 'exit 143' HUP INT TERM",
        '    "$runtime" -q pull --force "$@" "$part" "$source" && mv -f -- "$part" "$image"',
    ]
    return lines


def _forget_unused(days: int) -> list[str]:
    """Images by when they were last used; what killed pulls left after a day. Locks stay: one may be held."""
    unused = f"-o -name '*.sif' -mtime +{days}" if days > 0 else ""
    return [
        "forget_unused() {",
        f"    find \"$cache\" -maxdepth 1 -type f \\( -name '*.sif.*.*' -mtime +0 {unused} \\) \\",
        "        -exec rm -f -- {} + 2>/dev/null; :",
        "}",
    ]


def _run(container: Container, resources: Resources) -> list[str]:
    verb = "exec" if container.command else "run"
    words = [*runtime_flags(container.options)]
    tail = [quote(word) for word in (*container.command, *container.args)]
    argv = [
        "exec",
        *_launcher(container.options, resources),
        *_hand_on_gpus(container.options),
        '"$runtime"',
        "-q",
        verb,
        *map(quote, words),
        '"$image"',
        *tail,
    ]
    return [" ".join(argv)]


def runtime_flags(options: ContainerOptions) -> list[str]:
    """The switches of `run` and `exec`."""
    flags = [flag for field, flag in FLAGS.items() if getattr(options, field)]
    flags += [GPUS[options.gpus]] if options.gpus is not None else []
    flags += [f"--app={options.app}"] if options.app is not None else []
    flags += [f"--hostname={options.host_name}"] if options.host_name is not None else []
    return [*flags, *(f"--bind={bind}" for bind in options.binds)]


def _launcher(options: ContainerOptions, resources: Resources) -> Iterable[str]:
    """`srun` where there is more than one task, as one rank each with MPI; else none."""
    many = any((count or 1) > 1 for count in (resources.nodes, resources.tasks, resources.tasks_per_node))
    if options.mpi is None and not many:
        return
    yield "srun"
    if options.mpi is not None:
        yield f"--mpi={options.mpi}"
    if resources.cpus_per_task is not None:  # since 22.05 srun does not take it from sbatch
        yield f"--cpus-per-task={resources.cpus_per_task}"


def _hand_on_gpus(options: ContainerOptions) -> Iterable[str]:
    """Which GPUs Slurm gave: a clean environment would leave a task to take those of others.

    In each task, for srun tells them apart. What the request's own env says stands.
    """
    if options.gpus is None or not options.clean_env:
        return
    given = GPUS_GIVEN[options.gpus]
    names = [f"{prefix}{given}" for prefix in HANDED_ON]
    defaults = " ".join(f': "${{{name}=${given}}}";' for name in names)
    hand_on = f'if [ "${{{given}+set}}" ]; then {defaults} export {" ".join(names)}; fi; exec "$@"'
    yield from ("sh", "-c", quote(hand_on), "sh")
