"""How a running job is entered: through its companion, or through its pod on a virtual node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_slurm.errors import BadUsage, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.access import get_job_or_task
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.terminal.screen import one_line
from redbox_shared.pod_contract import COMPANION_PROGRAM, EXEC

SUSPENDED = "Suspended"
TAINT_SLURM = "redbox.dev/slurm"


@dataclass(frozen=True)
class JobEntry:
    """A job that runs, the pod through which it is entered, and the part of it that is meant."""

    job: SlurmJobView
    pod: dict[str, Any]
    node: str | None = None
    task: int | None = None

    @property
    def is_virtual(self) -> bool:
        """Whether the pod is on a virtual node: then it is the job itself."""
        tolerations = self.pod.get("spec", {}).get("tolerations") or ()
        return any(toleration.get("key") == TAINT_SLURM for toleration in tolerations)

    @property
    def place(self) -> list[str]:
        """The options of the companion's program for this node and task."""
        node = [f"--node={self.node}"] if self.node else []
        return [*node, *([f"--task={self.task}"] if self.task is not None else [])]

    def arguments(self, command: Sequence[str], *, stdin: bool, tty: bool = True) -> list[str]:
        """The arguments of kubectl that run this command in the job; `tty`: with the terminal, if any."""
        terminal = tty and stdin and sys.stdin.isatty() and sys.stdout.isatty()
        streams = [*(["--stdin"] if stdin else []), *(["--tty"] if terminal else []), "--quiet"]
        return ["exec", *streams, self.job.pod, "--", *self._in_pod(command)]

    def _in_pod(self, command: Sequence[str]) -> list[str]:
        if self.is_virtual and not self.place:  # all that an older resourced takes
            return list(command)
        return [COMPANION_PROGRAM, EXEC, *self.place, "--", *command]


def add_place(parser: argparse.ArgumentParser) -> None:
    """The options that name a part of the job."""
    parser.add_argument("--node", metavar="NODE", help="on this node of the job, by default its first")
    parser.add_argument("--task", type=int, metavar="INDEX", help="in this task of an array, as NAME_INDEX")


def entry_of(kubectl: Kubectl, name: str, options: argparse.Namespace) -> JobEntry:
    """The way into a job; Refusal where it does not run. Of an array red-box decides: a task may run.

    An array is Suspended as soon as the scheduler has suspended one of its tasks.
    """
    job, task = get_job_or_task(kubectl, name)
    if task is not None and options.task not in {None, task}:
        raise BadUsage(f"{name} is task {task}, and --task is {options.task}: leave out one of them")
    task = options.task if task is None else task
    if task is not None and not job.is_array:
        raise BadUsage(f"{job.name} is not an array, so it has no task {task}")
    if job.finished:
        raise Refusal(f"{job.name} has ended ({job.state or job.phase}): only a running job can be entered")
    if not job.running and not (job.is_array and job.phase == SUSPENDED):
        why = one_line(job.message) or job.reason
        raise Refusal(f"{job.name} does not run yet: it is {job.phase}{f' ({why})' if why else ''}")
    return JobEntry(job, kubectl.json("get", "pod", "--", job.pod), options.node, task)
