"""Annotations redbox.dev/*: what a SlurmJob says in its fields, and Kubernetes has no field for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from redbox_clusters.names import GROUP
from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported

PREFIX = f"{GROUP}/"
GPU_GRES = re.compile(r"(gres[/:])?gpu(:|$)")
NUMBER = re.compile(r"[0-9]{1,9}")
YES, NO = "true", "false"


class JobOptions(NamedTuple):
    """As given; the request's models check the values."""

    fields: dict[str, str]
    resources: dict[str, object]
    options: list[str]
    mpi: str | None
    dynamic_ports: bool = False

    @property
    def has_several_nodes(self) -> bool:
        return self.resources.get("nodes") not in {None, 1}

    @property
    def gpu_make(self) -> Literal["nvidia"] | None:
        """As for a resource of Red Box: who has GPUs of AMD requests amd.com/gpu."""
        gres = str(self.resources.get("gres", "")).split(",")
        return "nvidia" if any(GPU_GRES.match(each) for each in gres) else None


FIELDS = ("account", "qos")
NUMBERS = {"nodes": "nodes", "tasks-per-node": "tasks_per_node"}
LONGEST = 1000
"""Of an option for sbatch."""
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
RESOURCES = ("time", "gres")
OPTIONS = ("constraint", "reservation")
MEANINGS = {
    "account": "as `spec.account` of a SlurmJob",
    "qos": "as `spec.qos`",
    "time": "as `spec.resources.time`; it replaces the limit from activeDeadlineSeconds",
    "nodes": "as `spec.resources.nodes`; more than one needs mpi",
    "tasks-per-node": "as `spec.resources.tasksPerNode`",
    "gres": "as `spec.resources.gres`",
    "constraint": "as sbatch --constraint",
    "reservation": "as sbatch --reservation",
    "exclusive": "true: as sbatch --exclusive",
    "mpi": "the main container is started by srun --mpi on all nodes: pmix",
    "options": "as `spec.options`, one on each line",
    "dynamic-ports": "true: each declared TCP port stands for a free port of the node, which all containers "
    "find in `$PORT` (the pod's first) and `$PORT_NAME`",
}


def job_options(pod: Object) -> JobOptions:
    """Raises Unsupported for an annotation of redbox.dev/ that has no meaning."""
    given = _given(pod["metadata"].get("annotations") or {})
    resources: dict[str, object] = {name: given[name] for name in RESOURCES if name in given}
    resources |= {ours: _number(name, given[name]) for name, ours in NUMBERS.items() if name in given}
    options = [f"--{name}={given[name]}" for name in OPTIONS if name in given]
    options += ["--exclusive"] if _is_true(given, "exclusive") else []
    options += [line.strip() for line in given.get("options", "").splitlines() if line.strip()]
    found = JobOptions(
        {name: given[name] for name in FIELDS if name in given},
        resources,
        options,
        given.get("mpi"),
        _is_true(given, "dynamic-ports"),
    )
    if found.has_several_nodes and not found.mpi:
        raise Unsupported(f"{path_of('nodes')}: the containers run on the first node alone: add {PREFIX}mpi")
    if found.mpi and len(pod["spec"]["containers"]) > 1:
        raise Unsupported(
            f"{path_of('mpi')}: srun starts one container on all nodes, and others would wait for its CPUs: "
            "make them init containers with restartPolicy Always"
        )
    return found


def _given(annotations: Mapping[str, str]) -> dict[str, str]:
    given = {
        key.removeprefix(PREFIX): value.strip()
        for key, value in annotations.items()
        if key.startswith(PREFIX)
    }
    for name, value in given.items():
        if name not in MEANINGS:
            raise Unsupported(f"{path_of(name)}: there is no such option: use one of {', '.join(MEANINGS)}")
        lines = value.splitlines() if name == "options" else [value]
        if any(len(line) > LONGEST or CONTROLS.search(line.strip()) for line in lines):
            raise Unsupported(
                f"{path_of(name)}: it is too long or has a control character: write at most {LONGEST} "
                "printable characters in a line"
            )
    return given


def path_of(name: str) -> str:
    """The field of an annotation of ours."""
    return f"metadata.annotations[{PREFIX}{name}]"


def _number(name: str, text: str) -> int:
    if not NUMBER.fullmatch(text):
        raise Unsupported(f"{path_of(name)}: {text!r} is not a number of {name}: write 2, for instance")
    return int(text)


def _is_true(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, NO)
    if text not in {YES, NO}:
        raise Unsupported(f"{path_of(name)}: {text!r} is neither true nor false: write one of them")
    return text == YES
