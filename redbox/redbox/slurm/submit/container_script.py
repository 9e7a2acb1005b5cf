"""A container as a batch script: the command line of Apptainer or Singularity, whichever the node has. Pure.

Words of the request are quoted, so that the container's argv is exactly the request's. The request's env is
not in the script but in the job's environment, under the names that the runtime passes on (APPTAINERENV_X),
so that a PATH for the container is not the node's. Images are pulled once for each user into a cache, one
after another; credentials are read from a file that only the job's user can read, and which is removed after
the pull.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redbox.runner.program.images import PULLS_LOCK, WAIT_FOR_PULLS_S
from redbox.slurm.errors import RequestRefused
from redbox_api.job_parts import Container, ContainerOptions, RegistryCredentials, Resources
from redbox_api.models import JobRequest

PULLED = ("docker://", "library://", "oras://", "http://", "https://")
WITH_CREDENTIALS = ("docker://", "oras://")
WITH_TAGS = ("docker://", "oras://", "library://")
RUNTIME_SETTING = re.compile(r"(?:APPTAINER|SINGULARITY)_")
PASSED_ON = ("APPTAINERENV_", "SINGULARITYENV_")
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
# Slurm sets them in each task.
GPU_VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"}
NO_RUNTIME, NO_IMAGE = 127, 125
SILENT_WAIT_S = 10
FIND_RUNTIME = (
    "cr=$(printf '\\r')",
    "runtime=$(command -v apptainer || command -v singularity) || {",
    '    echo "red-box: neither apptainer nor singularity is in PATH on $(uname -n): $PATH" >&2',
    f"    exit {NO_RUNTIME}",
    "}",
)


@dataclass(frozen=True, slots=True)
class ContainerPaths:
    """Absolute paths, and the administrator's settings for container jobs."""

    image_cache: str
    credentials: str | None = None  # the file with the content of `credentials_file`
    setup: str = ""  # lines of sh that run first: module load apptainer
    keep_days: int = 0  # images unused for longer are removed; 0: never


def build_container_script(request: JobRequest, paths: ContainerPaths) -> str:
    """The batch script of a container request; RequestRefused for what cannot work."""
    container = request.container
    if container is None:
        raise ValueError("this request has no container")
    _check(container)
    parts = [
        "#!/bin/sh",
        "# Made by red-box from a container request.",
        *([paths.setup.rstrip("\n")] if paths.setup else []),
        *FIND_RUNTIME,
        *(
            _pull(container, paths)
            if container.image.startswith(PULLED)
            else [f"image={quote(container.image)}"]
        ),
        _run(container, request.resources),
    ]
    return "\n".join(parts) + "\n"


def container_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The request's env under the names that the runtime passes on; its own settings keep their names."""
    names: dict[str, str] = {"APPTAINER_NO_EVAL": "1", "SINGULARITY_NO_EVAL": "1"}
    for name, value in env.items():
        if RUNTIME_SETTING.match(name):
            names[name] = value
        else:
            names.update({prefix + name: value for prefix in PASSED_ON})
    return names


def credentials_file(registry: RegistryCredentials) -> bytes:
    """Assignments in sh, in which a password may contain any character."""
    values = {"USERNAME": registry.username, "PASSWORD": registry.password.get_secret_value()}
    lines = [
        f"{prefix}_{name}={shlex.quote(value)}; export {prefix}_{name}\n"
        for name, value in values.items()
        for prefix in CREDENTIAL_NAMES
    ]
    return "".join(lines).encode()


def quote(word: str) -> str:
    """One word of sh, with a carriage return as a variable: sbatch rejects scripts with DOS line ends."""
    return shlex.quote(word).replace("\r", "'\"$cr\"'")


def pulls_always(image: str) -> bool:
    """As in Kubernetes: each job pulls an image that has no tag, or the tag latest."""
    if "@sha256:" in image or not image.startswith(WITH_TAGS):
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in ("", "latest")


def _check(container: Container) -> None:
    image, options = container.image, container.options
    if not image.startswith((*PULLED, "/")):
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
            "container.options: cleanEnv removes the variables by which MPI's ranks find each other: each "
            "would be rank 0 of 1. Leave out cleanEnv or mpi."
        )


def _pull(container: Container, paths: ContainerPaths) -> list[str]:
    key = hashlib.sha256(container.image.encode()).hexdigest()
    credentials = paths.credentials
    lines = [
        f"source={quote(container.image)}",
        f"cache={quote(paths.image_cache)}",
        f'image="$cache/{key}.sif"',
    ]
    if credentials is not None:
        lines += [
            f"credentials={quote(credentials)}",
            'folder="${credentials%/*}" file="${credentials##*/}"',
            # Where others may write above, they can put their own folder there at any moment: so this looks
            # at the folder that it has entered, and reads from that one.
            "read_credentials() {",
            "    here=$PWD",
            '    [ -r "$credentials" ] && [ ! -L "$folder" ] && cd -- "$folder" || return',
            '    [ -O . ] && [ -O "$file" ] && . "./$file"',
            "    found=$?",
            '    cd -- "$here" && return "$found"',
            "}",
            'forget() { rm -f -- "$credentials"; rmdir -- "$folder" 2>/dev/null; }',
            "trap forget EXIT",
            "trap 'exit 143' HUP INT TERM",
        ]
    lines += [
        "pull() {",
        *_pull_function(container, with_credentials=credentials is not None),
        "}",
        *_remove_unused(paths.keep_days),
        '( umask 077 && mkdir -p -- "$cache" && pull && forget_unused ) || {',
        '    echo "red-box: the image $source could not be pulled" >&2',
        f"    exit {NO_IMAGE}",
        "}",
    ]
    if credentials is not None:
        lines += ["forget", "trap - EXIT HUP INT TERM"]
    return lines


def _pull_function(container: Container, *, with_credentials: bool) -> list[str]:
    """One pull at a time for a user; the image is renamed to its path when it is complete.

    Apptainer's own cache in the user's home has one index of all images, and no lock: of two pulls at once,
    one can read half an index and fail. A job that has waited for ten minutes pulls nevertheless, unless the
    pull is of the same image. The subshell has traps of its own: a job that is cancelled during the pull
    leaves no partial image.
    """
    found = '    if [ -e "$image" ]; then touch -c -- "$image"; return 0; fi'
    is_kept = not pulls_always(container.image)
    lines = [
        *([found] if is_kept else []),
        "    flock=$(command -v flock || echo :)",
        f'    exec 8>"$cache/{PULLS_LOCK}" 9>"$image.lock"',
        f'    "$flock" -w {SILENT_WAIT_S} 8 2>/dev/null || {{',
        '        echo "red-box: $source: waiting for another pull of yours" >&2',
        f'        "$flock" -w {WAIT_FOR_PULLS_S} 8 2>/dev/null',
        "    }",
        '    "$flock" 9',
        *([found] if is_kept else []),
    ]
    if with_credentials:
        lines += [
            "    # They are gone if another task of this array, or an earlier run, has pulled it.",
            '    if ! read_credentials && [ -e "$image" ]; then return 0; fi',
        ]
    if container.options.allow_unsigned:  # Apptainer has no such option: it allows them always
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


def _remove_unused(days: int) -> list[str]:
    """Images unused for so many days, and parts of killed pulls after one. Locks stay: one may be held."""
    unused = f"-o -name '*.sif' -mtime +{days}" if days > 0 else ""
    return [
        "forget_unused() {",
        f"    find \"$cache\" -maxdepth 1 -type f \\( -name '*.sif.*.*' -mtime +0 {unused} \\) \\",
        "        -exec rm -f -- {} + 2>/dev/null; :",
        "}",
    ]


def _run(container: Container, resources: Resources) -> str:
    launcher = [*_launcher(container.options, resources), *_pass_on_gpus(container.options)]
    verb = "exec" if container.command else "run"
    flags = map(quote, runtime_flags(container.options))
    command = map(quote, (*container.command, *container.args))
    return " ".join(["exec", *launcher, '"$runtime" -q', verb, *flags, '"$image"', *command])


def runtime_flags(options: ContainerOptions) -> list[str]:
    flags = [flag for field, flag in FLAGS.items() if getattr(options, field)]
    flags += [GPUS[options.gpus]] if options.gpus is not None else []
    flags += [f"--app={options.app}"] if options.app is not None else []
    flags += [f"--hostname={options.host_name}"] if options.host_name is not None else []
    return [*flags, *(f"--bind={bind}" for bind in options.binds)]


def _launcher(options: ContainerOptions, resources: Resources) -> Iterable[str]:
    """`srun` for more than one task, or for MPI; else nothing."""
    many = any((count or 1) > 1 for count in (resources.nodes, resources.tasks, resources.tasks_per_node))
    if options.mpi is None and not many:
        return
    yield "srun"
    if options.mpi is not None:
        yield f"--mpi={options.mpi}"
    if resources.cpus_per_task is not None:  # since 22.05 srun does not inherit it from sbatch
        yield f"--cpus-per-task={resources.cpus_per_task}"


def _pass_on_gpus(options: ContainerOptions) -> Iterable[str]:
    """Pass on which GPUs Slurm allocated: in a clean environment a task would use those of other tasks.

    It runs in each task, as srun allocates for each. Values in the request's env have precedence.
    """
    if options.gpus is None or not options.clean_env:
        return
    given = GPU_VARIABLES[options.gpus]
    names = [f"{prefix}{given}" for prefix in PASSED_ON]
    defaults = " ".join(f': "${{{name}=${given}}}";' for name in names)
    pass_on = f'if [ "${{{given}+set}}" ]; then {defaults} export {" ".join(names)}; fi; exec "$@"'
    yield from ("sh", "-c", quote(pass_on), "sh")
