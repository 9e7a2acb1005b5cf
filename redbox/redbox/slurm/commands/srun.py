"""srun: the kinds of MPI that this cluster's Slurm can start; a step beside those of a running job."""

from __future__ import annotations

import re
from collections.abc import Sequence

from redbox.slurm.errors import RequestRefused

SINGLETONS = frozenset({"none", "pmi2", "cray_shasta", "openmpi"})
"""Kinds with which current MPI libraries start every rank as "0 of 1", silently and with exit code 0."""
KIND = re.compile(r"^\t\s*(\S+)$", re.MULTILINE)
VERSIONED = re.compile(r"^specific \S+ plugin versions available: (.*)$", re.MULTILINE)


def mpi_kinds_argv() -> list[str]:
    return ["srun", "--mpi=list"]


def read_mpi_kinds(text: str) -> frozenset[str]:
    """`none`, `pmix`, `pmix_v5`; old releases print one `srun: kind` a line."""
    listed = {word.strip() for found in VERSIONED.findall(text) for word in found.split(",")}
    old = re.findall(r"^srun: (?:\s*)([a-z0-9_]+)$", text, re.MULTILINE)
    return frozenset(KIND.findall(text)) | listed | frozenset(old)


def check_mpi_kind(kind: str, available: frozenset[str], field: str = "container.options.mpi") -> None:
    """Refuse a kind that starts every rank alone, or that this Slurm does not have."""
    working = ", ".join(sorted(available - SINGLETONS))
    if kind in SINGLETONS:
        raise RequestRefused(
            f"{field}: --mpi={kind} starts every rank alone, as rank 0 of 1, without an error. "
            f"Use one of: {working or 'none works here'}."
        )
    if available and kind not in available:
        message = f"this cluster's Slurm has no {kind}; it has: {working or 'none that works'}."
        raise RequestRefused(f"{field}: {message}")


def overlap_argv(job_id: str, node: str, name: str, program: Sequence[str]) -> list[str]:
    """One task beside the job's own, on one node: without -N1 -n1 it would run on all of them.

    -u: else a byte without a newline stays in srun. --immediate: a step of a job that has just been suspended
    would wait for ever. --het-group: srun rejects a step of a het job without it, and the own id of a
    component; 7+1, as sacct has it, is the second component of job 7.
    """
    leader, _, component = job_id.partition("+")
    where = [f"--het-group={component}"] if component else []
    where += ["-w", node] if node else []
    options = ["--overlap", "-N1", "-n1", *where, "--immediate=10", "-J", name]
    return ["srun", "-Q", "-u", f"--jobid={leader}", *options, *program]
