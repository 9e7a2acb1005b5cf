r"""The paths of a job's output: sbatch's file name patterns, resolved as slurmstepd does on the first node.

squeue and sacct show patterns unresolved, and scontrol resolves some (22.05: not %6j, and %%j wrongly). A
path that depends on the node of a job without a node is None. A pattern of an array is resolved for each
task. A backslash anywhere disables patterns.
"""

from __future__ import annotations

import glob
import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache

from redbox.core.workload_manager import JobOutput

PATTERN = re.compile(r"%(?:([0-9]*)([AaJjNnstuxb])|([0-9]+)|%)")
TASK_PATTERN = re.compile(r"%[0-9]*[Aa]")
VARYING = re.compile(r"%[0-9]*[abJjNnst]")  # between the tasks of an array
BY_OWN_ID, BY_NODE = re.compile(r"%[0-9]*[Jj]"), re.compile(r"%[0-9]*N")
ANY = "\1"  # stands for what varies
ESCAPED = re.compile(r"\\(.?)")
PADDED = frozenset("AaJjnstb")
WIDEST = 10  # sbatch's own bound for %10j
RUNNER_LOG = "runner-%j.log"
"""Where the script of a pod's job writes by default, and its runner: containers have files of their own."""
NO_TASK = 0xFFFFFFFE  # the value of %a for a job that is not an array


@dataclass(frozen=True, slots=True)
class PatternValues:
    """The values of the symbols in a pattern."""

    job_id: str | None  # the task's own, of an array; None: not known
    user: str
    name: str
    working_directory: str
    array_job_id: str | None = None
    array_task: int | None = None
    first_node: str | None = None

    def symbols(self) -> dict[str, str | None]:
        task = NO_TASK if self.array_task is None else self.array_task
        return {
            "A": self.array_job_id or self.job_id,
            "a": str(task),
            "J": self.job_id,
            "j": self.job_id,
            "N": self.first_node,
            "n": "0",
            "s": "batch",
            "t": "0",
            "u": self.user,
            "x": self.name,
            "b": str(task % 10),
        }


def resolve_pattern(pattern: str, values: PatternValues) -> str | None:
    """The path, or None while it depends on a value that is missing."""
    if "\\" in pattern:
        return posixpath.join(values.working_directory, ESCAPED.sub(r"\1", pattern))
    symbols = values.symbols()
    if any(symbols[found[2]] is None for found in PATTERN.finditer(pattern) if found[2]):
        return None

    def replacement(found: re.Match[str]) -> str:
        if not found[2]:
            return found[3] or "%"  # a number that belongs to no symbol loses its percent sign
        value = symbols[found[2]] or ""
        padded = found[1] and found[2] in PADDED
        return value.rjust(min(int(found[1]), WIDEST), "0") if padded else value

    return posixpath.join(values.working_directory, PATTERN.sub(replacement, pattern))


def resolve_unless_array(pattern: str, values: PatternValues, *, is_array: bool) -> str | None:
    """The path as far as it is known: an array's keeps its patterns, which each task resolves."""
    if (is_array or TASK_PATTERN.search(pattern)) and "\\" not in pattern:
        return posixpath.join(values.working_directory, pattern)
    return resolve_pattern(pattern, values)


@lru_cache(maxsize=1024)
def named_by(stdout: str | None, stderr: str | None) -> tuple[bool, bool]:
    """Whether a task's own id, and whether its node, is in the names of its output."""
    patterns = f"{stdout}\n{stderr}"
    return BY_OWN_ID.search(patterns) is not None, BY_NODE.search(patterns) is not None


def output_glob(output: JobOutput) -> tuple[str, str]:
    """A directory, and a glob below it of the output, or of those of an array's tasks.

    The glob has a wildcard in its last part, so that the directory is listed: a single name is looked up,
    and network file systems cache for a while that it was missing.
    """
    values = PatternValues(output.job_id, output.user.name, output.job_name, output.working_directory)
    path = output.path
    if TASK_PATTERN.search(path):
        path = resolve_pattern(VARYING.sub(ANY, path), values) or path
    directory, name = posixpath.split(path)
    while ANY in directory:
        directory, parent = posixpath.split(directory)
        name = posixpath.join(parent, name)
    pattern = glob.escape(name).replace(ANY, "*")
    head, last = posixpath.split(pattern)
    if not glob.has_magic(last):
        last = re.sub(r"([A-Za-z0-9])(?=[^A-Za-z0-9]*$)", r"[\1]", last)  # not the dot of a hidden file
    return directory, posixpath.join(head, last)
