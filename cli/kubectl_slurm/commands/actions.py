"""`cancel`, `hold`, `release`, `requeue`, `suspend`, `resume`: what is done to jobs, each by name.

What one job refuses does not keep the others: the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from kubectl_slurm.errors import BadUsage, PluginError, Refusal
from kubectl_slurm.kubectl.program import SLURMJOBS
from kubectl_slurm.options import Invocation, invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import PART, get_job, get_part, list_jobs, patch, pick_job
from kubectl_slurm.slurmjobs.clusters import check_partitions
from kubectl_slurm.slurmjobs.following import until_finished
from kubectl_slurm.slurmjobs.job import SlurmJobView, of_my_user, states_in
from kubectl_slurm.slurmjobs.requested_actions import (
    request_cancel,
    request_release,
    request_requeue,
    request_task_cancels,
)
from kubectl_slurm.terminal.screen import confirmed, note, one_line

TEXTS = {
    "cancel": "Cancel jobs in Slurm: those named, or what --all, --me, --partition and --state select.\n"
    "Their records and logs stay, until `kubectl slurm cancel --delete` or `kubectl delete slurmjob`.",
    "hold": "Keep waiting jobs from starting, until they are released. A running job is not affected.",
    "release": "Let held jobs start.",
    "requeue": "End running jobs and queue them again, with the same id: they run again from the beginning.",
    "suspend": "Keep jobs from running. A waiting job is held; a RUNNING JOB IS CANCELLED, and starts again "
    "from the beginning, as a new job, when it is resumed.",
    "resume": "Run suspended jobs again.",
}
EXIT_SOME_FAILED = 1
SHOWN = 10
Act = Callable[[Invocation, SlurmJobView, argparse.Namespace], str]


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    options = _parser(command).parse_args(words)
    is_all = getattr(options, "all", False)
    selects = is_all or (command == "cancel" and (options.me or options.partition or options.states))
    if not options.names and not selects:
        raise BadUsage(f"which job? `kubectl slurm {command} NAME`")
    if options.names and is_all:
        raise BadUsage(
            f"--all is every job of the namespace, not only {options.names[0]}: give names or --all"
        )
    states_in(getattr(options, "states", ""))
    call = invocation_of(options, given, environment)
    done = list[SlurmJobView]()
    failed = command == "cancel" and not selects and not _cancel_parts(call, options)
    jobs = _selected(call, options) if selects else _named(partial(get_job, call.kubectl), options.names)
    for job in jobs:
        if isinstance(job, PluginError):
            failed = True
            note(f"kubectl slurm: {job}")
            continue
        try:
            call.screen.write(one_line(ACTS[command](call, job, options)))
            done.append(job)
        except PluginError as error:
            failed = True
            note(f"kubectl slurm: {error}")
    if getattr(options, "wait", False) and not options.delete:
        for job in done:
            try:
                ended = until_finished(call.kubectl, job)
                call.screen.write(one_line(f"{_title(ended)} ended {ended.state or ended.phase}"))
            except PluginError as error:
                failed = True
                note(f"kubectl slurm: {error}")
    return EXIT_SOME_FAILED if failed else 0


def _parser(command: str) -> argparse.ArgumentParser:
    parser = parser_of(command, TEXTS[command])
    more = "; NAME_3 and NAME_[1-3] are tasks of an array" if command == "cancel" else ""
    help_text = f"SlurmJobs, or their Slurm job ids{more}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=help_text)
    if command == "cancel":
        parser.add_argument("--all", action="store_true", help="all of the namespace that have not ended")
        parser.add_argument("--me", action="store_true", help="those of my Unix user")
        parser.add_argument(
            "--service-account", default="default", metavar="NAME", help="the account whose Unix user is me"
        )
        parser.add_argument("-p", "--partition", metavar="NAMES", help="those of these partitions: a,b")
        parser.add_argument(
            "-t",
            "--state",
            "--states",
            dest="states",
            metavar="STATES",
            default="",
            help="those in these states of Slurm: PD,RUNNING; - is not in Slurm yet",
        )
        parser.add_argument(
            "-y", "--yes", action="store_true", help="do not ask before several jobs are cancelled"
        )
        parser.add_argument("--delete", action="store_true", help="delete their SlurmJobs and logs as well")
        parser.add_argument("--wait", action="store_true", help="until Slurm has ended them")
    return parser


def _cancel_parts(call: Invocation, options: argparse.Namespace) -> bool:
    """Cancel NAME_3 and NAME_[1-3], and take them off the names; False where one was not cancelled."""
    arrays: dict[str, tuple[SlurmJobView, list[int]]] = {}
    well = True
    for name in [name for name in options.names if PART.fullmatch(name)]:
        try:
            job, tasks = get_part(call.kubectl, name)
            if tasks:
                options.names.remove(name)
                arrays.setdefault(job.uid, (job, []))[1].extend(tasks)
        except PluginError as error:
            options.names.remove(name)
            well = False
            note(f"kubectl slurm: {error}")
    if arrays and (options.delete or options.wait):
        raise BadUsage("--delete and --wait are about whole SlurmJobs: leave them out, or the tasks")
    for job, tasks in arrays.values():
        try:
            _refuse_ended(job)
            for done in request_task_cancels(call.kubectl, job, sorted({*tasks})):
                if isinstance(done, Refusal):
                    well = False
                    note(f"kubectl slurm: {done}")
                    continue
                which, are = ("task", "is") if len(done) == 1 else ("tasks", "are")
                call.screen.write(
                    one_line(f"{_title(job)}: {which} {', '.join(map(str, done))} {are} cancelled")
                )
        except PluginError as error:
            well = False
            note(f"kubectl slurm: {error}")
    return well


def _named(find: Callable[[str], SlurmJobView], names: Sequence[str]) -> Iterator[SlurmJobView | PluginError]:
    """Each as it is when its turn comes, or why it is not found."""
    for name in names:
        try:
            yield find(name)
        except PluginError as error:
            yield error


def _selected(call: Invocation, options: argparse.Namespace) -> Sequence[SlurmJobView | PluginError]:
    """Those of the namespace that have not ended and that all of the options select, after a question."""
    jobs: Sequence[SlurmJobView] = list_jobs(call.kubectl)
    missing = check_partitions(call.kubectl, options.partition, jobs)
    found = [*_named(partial(pick_job, call.kubectl, jobs), options.names)]
    refused = [error for error in found if isinstance(error, PluginError)]
    if missing:
        refused.append(Refusal(missing))
    named = {job.uid for job in found if isinstance(job, SlurmJobView)}
    if options.me:
        jobs = of_my_user(jobs, call.kubectl.namespace, options.service_account)
    states = states_in(options.states)
    jobs = [
        job
        for job in jobs
        if not job.finished
        and (options.delete or not job.being_cancelled)
        and (not options.names or job.uid in named)
        and (not options.partition or job.is_of_partition(options.partition))
        and (not states or job.is_in(states))
    ]
    if not jobs and not refused:
        such = "" if options.all else "such "
        note(f"No {such}SlurmJob of namespace {call.kubectl.namespace} waits or runs.")
    if len(jobs) > 1 and not options.yes and sys.stdin.isatty():
        listed = ", ".join(_title(job) for job in jobs[:SHOWN]) + (", ..." if len(jobs) > SHOWN else "")
        if not confirmed(f"Cancel {len(jobs)} jobs: {listed}?"):
            note("Nothing was cancelled.")
            return refused
    return [*refused, *jobs]


def _cancel(call: Invocation, job: SlurmJobView, options: argparse.Namespace) -> str:
    if options.delete:
        wait = "--wait=true" if options.wait else "--wait=false"
        call.kubectl.text("delete", SLURMJOBS, wait, "--", job.name)
        if job.finished:
            return f"{_title(job)} is deleted: it had ended"
        when = "deleted" if options.wait else "deleted when Slurm has ended it"
        return f"{_title(job)} is cancelled, and {when}"
    if job.finished:
        raise Refusal(
            f"{job.name} has ended ({job.state or job.phase}): `kubectl slurm cancel --delete {job.name}` "
            "removes its record"
        )
    request_cancel(call.kubectl, job)
    return f"{_title(job)} is cancelled"


def _hold(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if job.running:
        raise Refusal(
            f"{job.name} runs, and only waiting jobs are held: `kubectl slurm requeue {job.name}` ends it "
            f"and queues it again, `kubectl slurm suspend {job.name}` cancels it until it is resumed"
        )
    patch(call.kubectl, job, {"spec": {"hold": True}})
    return f"{_title(job)} is held: `kubectl slurm release {job.name}` lets it start"


def _release(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if job.suspended:
        raise Refusal(f"{job.name} is suspended: `kubectl slurm resume {job.name}` lets it run")
    if (job.held_by_slurm or job.held_in_slurm) and not job.held:
        request_release(call.kubectl, job)
        return f"{_title(job)} is to be released: `kubectl slurm explain {job.name}` shows whether it was"
    if not job.held:
        held_by_others = f" ({one_line(job.message)})" if "Held" in job.reason and job.message else ""
        raise Refusal(f"{job.name} is not held by its SlurmJob{held_by_others}")
    patch(call.kubectl, job, {"spec": {"hold": False}})
    return f"{_title(job)} is released"


def _suspend(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if job.suspended:
        raise Refusal(f"{job.name} is suspended already")
    patch(call.kubectl, job, {"spec": {"suspend": True}})
    later = f"`kubectl slurm resume {job.name}`"
    if job.running:
        return f"{_title(job)} ran: it is cancelled, and runs again from the beginning after {later}"
    return f"{_title(job)} is suspended: it starts after {later}"


def _resume(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if not job.suspended:
        cure = f": `kubectl slurm release {job.name}` lets it start" if job.held else ""
        raise Refusal(f"{job.name} is not suspended{cure}")
    patch(call.kubectl, job, {"spec": {"suspend": False}})
    return f"{_title(job)} is resumed" + (
        f"; it is held, too: `kubectl slurm release {job.name}`" if job.held else ""
    )


def _requeue(call: Invocation, job: SlurmJobView, _: argparse.Namespace) -> str:
    _refuse_ended(job)
    if job.phase not in {"Running", "Suspended"} or not job.in_slurm:
        raise Refusal(f"{job.name} does not run, so there is nothing to requeue: it is {job.phase}")
    if job.suspended:
        raise Refusal(f"{job.name} is suspended: `kubectl slurm resume {job.name}` runs it again")
    again = request_requeue(call.kubectl, job)
    return f"{_title(again)} is queued again: run {again.run} begins when Slurm starts it"


def _refuse_ended(job: SlurmJobView) -> None:
    if job.finished:
        raise Refusal(f"{job.name} has ended ({job.state or job.reason or job.phase}): submit it again")
    if job.being_cancelled:
        raise Refusal(f"{job.name} is being cancelled")


def _title(job: SlurmJobView) -> str:
    return f"{job.name} (Slurm job {job.job_id})" if job.in_slurm else job.name


ACTS: Mapping[str, Act] = {
    "cancel": _cancel,
    "hold": _hold,
    "release": _release,
    "requeue": _requeue,
    "suspend": _suspend,
    "resume": _resume,
}
