"""`cancel`, `hold`, `release`, `requeue`, `suspend`, `resume`: what is done to jobs, each by name.

What one job refuses does not keep the others: the exit code is 1 then.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from kubectl_slurm.errors import BadUsage, PluginError, Refusal
from kubectl_slurm.kubectl.program import SLURMJOBS
from kubectl_slurm.options import Invocation, invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import get_job, list_jobs, patch
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.requeues import request_requeue
from kubectl_slurm.terminal.screen import note, printable

TEXTS = {
    "cancel": "Cancel jobs. The SlurmJob is deleted, and its record and log with it: print the log before.\n"
    "Files on the Slurm cluster stay, slurm-JOBID.out among them. `kubectl slurm suspend` ends a running\n"
    "job, too, and keeps the SlurmJob with its log.",
    "hold": "Keep waiting jobs from starting, until they are released. A running job is not affected.",
    "release": "Let held jobs start.",
    "requeue": "End running jobs and queue them again, with the same id: they run again from the beginning.",
    "suspend": "Keep jobs from running. A waiting job is held; a RUNNING JOB IS CANCELLED, and starts again "
    "from the beginning, as a new job, when it is resumed.",
    "resume": "Run suspended jobs again.",
}
EXIT_SOME_FAILED = 1
Act = Callable[[Invocation, SlurmJobView, argparse.Namespace], str]


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    options = _parser(command).parse_args(words)
    is_all = getattr(options, "all", False)
    if not options.names and not is_all:
        raise BadUsage(f"which job? `kubectl slurm {command} NAME`")
    if options.names and is_all:
        raise BadUsage(
            f"--all is every job of the namespace, not only {options.names[0]}: give names or --all"
        )
    call = invocation_of(options, given, environment)
    act: Act = ACTS[command]
    failed = False
    for name in _names(call, options):
        try:
            call.screen.write(act(call, get_job(call.kubectl, name), options))
        except PluginError as error:
            failed = True
            note(f"kubectl slurm: {error}")
    return EXIT_SOME_FAILED if failed else 0


def _parser(command: str) -> argparse.ArgumentParser:
    parser = parser_of(command, TEXTS[command])
    parser.add_argument("names", nargs="*", metavar="NAME", help="SlurmJobs, or their Slurm job ids")
    if command == "cancel":
        parser.add_argument("--all", action="store_true", help="all of the namespace that have not ended")
        parser.add_argument("--wait", action="store_true", help="until Slurm has ended them")
    return parser


def _names(call: Invocation, options: argparse.Namespace) -> Sequence[str]:
    if not getattr(options, "all", False):
        return list(options.names)
    names = [job.name for job in list_jobs(call.kubectl) if not job.finished]
    if not names:
        note(f"No SlurmJob of namespace {call.kubectl.namespace} waits or runs.")
    return names


def _cancel(call: Invocation, job: SlurmJobView, options: argparse.Namespace) -> str:
    if job.finished:
        raise Refusal(
            f"{job.name} has ended ({job.state or job.phase}): `kubectl delete slurmjob {job.name}` removes "
            "its record"
        )
    wait = "--wait=true" if options.wait else "--wait=false"
    call.kubectl.text("delete", SLURMJOBS, wait, "--", job.name)
    return f"{_named(job)} is cancelled" + ("" if options.wait else ", and deleted when Slurm has ended it")


def _hold(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if job.running:
        raise Refusal(
            f"{job.name} runs, and only waiting jobs are held: `kubectl slurm requeue {job.name}` ends it "
            f"and queues it again, `kubectl slurm suspend {job.name}` cancels it until it is resumed"
        )
    patch(call.kubectl, job, {"spec": {"hold": True}})
    return f"{_named(job)} is held: `kubectl slurm release {job.name}` lets it start"


def _release(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if job.suspended:
        raise Refusal(f"{job.name} is suspended: `kubectl slurm resume {job.name}` lets it run")
    if not job.held:
        held_by_others = f" ({printable(job.message)})" if "Held" in job.reason and job.message else ""
        raise Refusal(f"{job.name} is not held by its SlurmJob{held_by_others}")
    patch(call.kubectl, job, {"spec": {"hold": False}})
    return f"{_named(job)} is released"


def _suspend(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if job.suspended:
        raise Refusal(f"{job.name} is suspended already")
    patch(call.kubectl, job, {"spec": {"suspend": True}})
    later = f"`kubectl slurm resume {job.name}`"
    if job.running:
        return f"{_named(job)} ran: it is cancelled, and runs again from the beginning after {later}"
    return f"{_named(job)} is suspended: it starts after {later}"


def _resume(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if not job.suspended:
        cure = f": `kubectl slurm release {job.name}` lets it start" if job.held else ""
        raise Refusal(f"{job.name} is not suspended{cure}")
    patch(call.kubectl, job, {"spec": {"suspend": False}})
    return f"{_named(job)} is resumed" + (
        f"; it is held, too: `kubectl slurm release {job.name}`" if job.held else ""
    )


def _requeue(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if job.phase not in {"Running", "Suspended"} or not job.in_slurm:
        raise Refusal(f"{job.name} does not run, so there is nothing to requeue: it is {job.phase}")
    if job.suspended:
        raise Refusal(f"{job.name} is suspended: `kubectl slurm resume {job.name}` runs it again")
    again = request_requeue(call.kubectl, job)
    return f"{_named(again)} is queued again: run {again.run} begins when Slurm starts it"


def _refuse_ended(job: SlurmJobView) -> None:
    if job.finished:
        raise Refusal(f"{job.name} has ended ({job.state or job.reason or job.phase}): submit it again")
    if job.being_deleted:
        raise Refusal(f"{job.name} is being cancelled")


def _named(job: SlurmJobView) -> str:
    return f"{job.name} (Slurm job {job.job_id})" if job.in_slurm else job.name


ACTS: Mapping[str, Act] = {
    "cancel": _cancel,
    "hold": _hold,
    "release": _release,
    "requeue": _requeue,
    "suspend": _suspend,
    "resume": _resume,
}
