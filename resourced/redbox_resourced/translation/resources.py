"""What the job requests of Slurm, from what the containers request of Kubernetes.

What no container says is left out, so that Slurm's own default counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from redbox_clusters.names import GROUP
from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.quantities import ceil, parse_quantity

RUNTIME_MEMORY = 30 * 1024 * 1024
"""Of Apptainer, for each container that runs at the same time; it is a part of the job's memory."""
MIB = 1024 * 1024
NVIDIA, AMD, ANY_GPU = "nvidia.com/gpu", "amd.com/gpu", "gpus"
CPU, MEMORY, DISK = "cpu", "memory", "ephemeral-storage"
MOST = {CPU: 100_000, MEMORY: 10**9, DISK: 10**9, ANY_GPU: 999_999}
"""That a request can have, in Slurm's units."""
Amounts = Mapping[str, Decimal]


@dataclass(frozen=True)
class RequestedResources:
    """In Slurm's units; None: not said."""

    cpus: int | None
    memory_mb: int | None
    disk_mb: int | None
    gpus: int | None
    gpu_make: Literal["nvidia", "rocm"] | None


def requested(pod: Object) -> RequestedResources:
    """By Kubernetes' rule on init containers, sidecars and overhead."""
    spec = pod["spec"]
    amounts = _effective(spec)
    gpus = {name: amount for name, amount in amounts.items() if amount and _is_gpu(name)}
    if len(gpus) > 1:
        raise Unsupported(f"spec.containers: request GPUs by one name, not by {', '.join(sorted(gpus))}")
    make = next(iter(gpus), None)
    memory = amounts.get(MEMORY)
    found = {
        CPU: _at_least_one(amounts.get(CPU)),
        MEMORY: None if not memory else ceil((memory + RUNTIME_MEMORY * _at_once(spec)) / MIB),
        DISK: None if not amounts.get(DISK) else ceil(amounts[DISK] / MIB),
        ANY_GPU: ceil(gpus[make]) if make else None,
    }
    for name, amount in found.items():
        if amount is not None and amount > MOST[name]:
            raise Unsupported(f"{_largest_field(pod, name)}: no job can have so much: request less")
    return RequestedResources(
        cpus=found[CPU],
        memory_mb=None if _has_unlimited(spec) else found[MEMORY],
        disk_mb=found[DISK],
        gpus=found[ANY_GPU],
        gpu_make=None if make is None else "rocm" if make == AMD else "nvidia",
    )


def _effective(spec: Object) -> Amounts:
    """max(each init container with the sidecars before it, containers with all sidecars) + overhead."""
    sidecars: dict[str, Decimal] = {}
    largest: dict[str, Decimal] = {}
    for given in spec.get("initContainers") or ():
        own = _own(given, f"spec.initContainers[{given['name']}]")
        if given.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, own))
        else:
            largest = _max(largest, _sum((sidecars, own)))
    main = _sum(
        (sidecars, *(_own(given, f"spec.containers[{given['name']}]") for given in spec["containers"]))
    )
    of_pod = _own(spec, "spec") if spec.get("resources") else {}
    overhead = {
        name: parse_quantity(amount, f"spec.overhead.{name}")
        for name, amount in (spec.get("overhead") or {}).items()
    }
    return _sum(({**_max(largest, main), **of_pod}, overhead))


def _own(given: Object, field: str) -> Amounts:
    resources = given.get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    amounts = {}
    for name in {**requests, **limits}:
        part = _chosen_part(name, limits, requests)
        where = f"{field}.resources.{part}.{name}"
        _check(name, where)
        amounts[name] = parse_quantity(resources[part][name], where)
    return amounts


def _chosen_part(name: str, limits: Collection[str], requests: Collection[str]) -> str:
    """Memory is what the containers may use at most, all else what they request."""
    if name == MEMORY:
        return "limits" if name in limits else "requests"
    return "requests" if name in requests else "limits"


def _largest_field(pod: Object, name: str) -> str:
    """Where most of it is requested, which is what to change where it is too much; ANY_GPU: of all GPUs."""
    spec = pod["spec"]
    owners = [("spec", spec)] if spec.get("resources") else []
    owners += [
        (f"spec.{part}[{given['name']}]", given)
        for part in ("containers", "initContainers")
        for given in spec.get(part) or ()
    ]
    found: list[tuple[Decimal, str]] = []
    for owner, given in owners:
        resources = given.get("resources") or {}
        parts = resources.get("limits") or {}, resources.get("requests") or {}
        found += [
            (amount, f"{owner}.resources.{_chosen_part(each, *parts)}.{each}")
            for each, amount in _own(given, owner).items()
            if each == name or (name == ANY_GPU and _is_gpu(each))
        ]
    return max(found, default=(Decimal(0), "spec.containers"), key=lambda row: row[0])[1]


def _check(name: str, field: str) -> None:
    if name not in {CPU, MEMORY, DISK} and not _is_gpu(name):
        raise Unsupported(
            f"{field}: Slurm has no {name}: leave it out; the annotation {GROUP}/gres requests other things"
        )


def _is_gpu(name: str) -> bool:
    owner, _, resource = name.partition("/")
    return name in {NVIDIA, AMD} or (owner.endswith(f".{GROUP}") and resource == ANY_GPU)


def _sum(parts: Iterable[Amounts]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def _max(first: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {
        name: max(first.get(name, Decimal(0)), other.get(name, Decimal(0))) for name in {**first, **other}
    }


def _has_unlimited(spec: Object) -> bool:
    """Whether one of the containers that run at the same time names no memory, and the pod names none either.

    It may use what there is: a sum of the others' would be a limit that no author wrote.
    """
    if _own(spec, "spec").get(MEMORY):
        return False
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    containers = [*sidecars, *spec["containers"]]
    return not all(_own(each, f"spec.containers[{each['name']}]").get(MEMORY) for each in containers)


def _at_once(spec: Object) -> int:
    """How many containers run at the same time, at most."""
    policies = [each.get("restartPolicy") for each in spec.get("initContainers") or ()]
    return policies.count("Always") + len(spec["containers"])


def _at_least_one(cpus: Decimal | None) -> int | None:
    return ceil(cpus) if cpus else None
