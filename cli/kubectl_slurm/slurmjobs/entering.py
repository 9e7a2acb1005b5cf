"""How a running job is entered: through its companion, or through its pod on a virtual node."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubectl_slurm.errors import BadUsage, Refusal
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.access import get_job
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.terminal.screen import one_line

SUSPENDED = "Suspended"
TAINT_SLURM = "redbox.dev/slurm"
COMPANION = ("redbox-companion", "exec")
SHELL = ("/bin/sh", "-c", 'if [ -x "$SHELL" ]; then exec "$SHELL" -l; fi; exec /bin/sh')


@dataclass(frozen=True)
class JobEntry:
    """A job that runs, and the pod through which it is entered."""

    job: SlurmJobView
    pod: dict[str, Any]

    @property
    def is_virtual(self) -> bool:
        """Whether the pod is on a virtual node: then it is the job itself."""
        tolerations = self.pod.get("spec", {}).get("tolerations") or ()
        return any(toleration.get("key") == TAINT_SLURM for toleration in tolerations)

    def arguments(
        self, command: Sequence[str], *, stdin: bool, node: str | None = None, task: int | None = None
    ) -> list[str]:
        """The arguments of kubectl that run this command in the job."""
        terminal = stdin and sys.stdin.isatty() and sys.stdout.isatty()
        streams = [*(["--stdin"] if stdin else []), *(["--tty"] if terminal else []), "--quiet"]
        return ["exec", *streams, self.job.pod, "--", *self._in_pod(command, node, task)]

    def _in_pod(self, command: Sequence[str], node: str | None, task: int | None) -> list[str]:
        if not self.is_virtual:
            where = [f"--node={node}"] if node else []
            where += [f"--task={task}"] if task is not None else []
            return [*COMPANION, *where, "--", *command]
        if node or task is not None:
            raise BadUsage(
                f"{self.job.name} is a pod on a virtual node, whose sessions are on its job's first node: "
                "leave out --node and --task"
            )
        return list(command)


def entry_of(kubectl: Kubectl, name: str) -> JobEntry:
    """The way into a job; Refusal where it does not run. Of an array red-box decides: a task may run.

    An array is Suspended as soon as the scheduler has suspended one of its tasks.
    """
    job = get_job(kubectl, name)
    if job.finished:
        raise Refusal(f"{job.name} has ended ({job.state or job.phase}): only a running job can be entered")
    if not job.running and not (job.is_array and job.phase == SUSPENDED):
        why = one_line(job.message) or job.reason
        raise Refusal(f"{job.name} does not run yet: it is {job.phase}{f' ({why})' if why else ''}")
    return JobEntry(job, kubectl.json("get", "pod", "--", job.pod))
