r"""Where a job's output goes: sbatch's file name patterns, resolved as slurmstepd does on the first node.

squeue and sacct show them unresolved, and scontrol resolves some (22.05: not %6j, and %%j wrongly). What is
only known later (the node) leaves the path open: None. A pattern for an array is resolved for each task. A
backslash anywhere switches patterns off.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

PATTERN = re.compile(r"%(?:([0-9]*)([AaJjNnstuxb])|([0-9]+)|%)")
ESCAPED = re.compile(r"\\(.?)")
PADDED = frozenset("AaJjnstb")
WIDEST = 10  # sbatch's own bound for %10j
NO_TASK = 0xFFFFFFFE  # what %a is for a job that is no array


@dataclass(frozen=True, slots=True)
class PatternValues:
    """What patterns stand for."""

    job_id: str  # the task's own, of an array
    user: str
    name: str
    working_directory: str
    array_job_id: str | None = None
    array_task: int | None = None
    first_node: str | None = None


def resolve_pattern(pattern: str, facts: PatternValues) -> str | None:
    """The path, or None while it depends on what is not known yet."""
    if "\\" in pattern:
        return posixpath.join(facts.working_directory, ESCAPED.sub(r"\1", pattern))
    values = _values(facts)
    if any(values[found[2]] is None for found in PATTERN.finditer(pattern) if found[2]):
        return None
    resolved = PATTERN.sub(lambda found: _value(found, values), pattern)
    return posixpath.join(facts.working_directory, resolved)


def depends_on_task(pattern: str) -> bool:
    """Whether each task of an array writes a file of its own."""
    return any(found[2] in ("a", "j", "J") for found in PATTERN.finditer(pattern) if found[2])


def _values(facts: PatternValues) -> dict[str, str | None]:
    task = facts.array_task
    return {
        "A": facts.array_job_id or facts.job_id,
        "a": str(NO_TASK if task is None else task),
        "J": facts.job_id,
        "j": facts.job_id,
        "N": facts.first_node,
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": facts.user,
        "x": facts.name,
        "b": str((NO_TASK if task is None else task) % 10),
    }


def _value(found: re.Match[str], values: dict[str, str | None]) -> str:
    if not found[2]:
        return found[3] or "%"  # a number that belongs to no symbol loses its percent sign
    value = values[found[2]] or ""
    if found[1] and found[2] in PADDED:
        return value.rjust(min(int(found[1]), WIDEST), "0")
    return value
