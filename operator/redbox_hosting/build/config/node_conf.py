"""The size and the options of a worker's node, from its container's limits. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.config.gres_conf import gpus_of
from redbox_kube.controller.steps import StepFailed
from redbox_shared.hosted_settings.keys import NODE_KEYS, why_refused
from redbox_shared.hosted_settings.lines import BARE, NOT_BARE, SYNTAX, ConfRefusal, pairs_of

MIB = 2**20
LEAST_RESERVE = 256 * MIB
RESERVED_SHARE, SHM_SHARE = Decimal("0.05"), Decimal("0.25")
SUFFIXES: dict[str, Decimal | int] = {
    "": 1,
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}
QUANTITY = re.compile(r"([0-9]{1,24}(?:\.[0-9]{1,24})?)([eE][0-9]{1,2})?(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]?)")


class BadSize(StepFailed, ValueError):
    """The limits of a worker cannot be a node's size."""


@dataclass(frozen=True, slots=True)
class WorkerSize:
    """What a worker's node has; None where its container has no limit, and the machine's is used."""

    cpus: int | None
    memory_mib: int | None
    shm_bytes: int
    gpus: int


NO_SIZE = WorkerSize(None, None, 0, 0)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The value of `slurmd --conf`, and what was refused."""

    text: str
    refused: tuple[ConfRefusal, ...]


def quantity(written: object) -> Decimal:
    """A quantity of Kubernetes as a number; raises BadSize."""
    match = QUANTITY.fullmatch(str(written).strip())
    if not match:
        raise BadSize(f"{str(written)[:60]!r} is not a quantity: write 500m, 4 or 8Gi")
    return Decimal(match[1] + (match[2] or "")) * SUFFIXES[match[3]]


def worker_size(node_set: NodeSet) -> WorkerSize:
    """From the limits of the container slurmd; raises BadSize.

    slurmd and its helpers need memory too, and /dev/shm is charged to the same limit.
    """
    limits = node_set.spec.slurmd.get("resources", {}).get("limits", {})
    cpus = max(1, int(quantity(limits["cpu"]))) if "cpu" in limits else None
    gpus = gpus_of(node_set)
    limit = quantity(limits["memory"]) if "memory" in limits else None
    asked = node_set.spec.redbox.shm_size
    by_default = int(limit * SHM_SHARE) if limit else 0
    shm = by_default if asked is None else int(quantity(asked))
    memory = None
    if limit is not None:
        reserve = max(Decimal(LEAST_RESERVE), limit * RESERVED_SHARE)
        memory = int((limit - reserve - shm) // MIB)
        if memory < 1:
            raise BadSize(
                f"slurmd.resources.limits.memory {limits['memory']} leaves nothing for jobs after 256Mi for "
                f"slurmd and {shm // MIB}Mi for /dev/shm: raise it, or set redbox.shmSize"
            )
    return WorkerSize(cpus, memory, shm, gpus[1] if gpus else 0)


def node_options(node_set: NodeSet, size: WorkerSize) -> WorkerOptions:
    """Its feature is the NodeSet's name, which partitions select nodes by. No option is empty."""
    text = " ".join((node_set.spec.extra_conf or "").split())
    pairs = pairs_of(text)
    refused = [ConfRefusal(text[:60], SYNTAX)] if text and not pairs else []
    given: dict[str, str] = {}
    for key, value in pairs:
        if not BARE.fullmatch(value):
            refused.append(ConfRefusal(f"extraConf: {key}={value[:60]}", NOT_BARE))
        elif canonical := NODE_KEYS.get(key.lower()):
            given[canonical] = value.strip('"')
        else:
            refused.append(ConfRefusal(f"extraConf: {key}", why_refused(key)))
    features = [node_set.name, *given.pop("Feature", "").split(",")]
    options = {
        "Feature": ",".join(dict.fromkeys(filter(None, features))),
        "CPUs": str(size.cpus or ""),
        "RealMemory": str(size.memory_mib or ""),
        "Gres": f"gpu:{size.gpus}" if size.gpus else "",
        **given,
    }
    return WorkerOptions(
        " ".join(f"{key}={value}" for key, value in options.items() if value), tuple(refused)
    )
