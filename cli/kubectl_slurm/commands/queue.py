"""`queue`: what waits and runs, in squeue's columns."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from kubectl_slurm.errors import EXIT_FAILED, BadUsage, NotAnswered, ObjectNotFound, Refusal
from kubectl_slurm.kubectl.refusals import ANOTHER_NAMESPACE, LISTED
from kubectl_slurm.options import Invocation, invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import MOST_REFUSALS, list_jobs, oldest_first
from kubectl_slurm.slurmjobs.clusters import check_partitions
from kubectl_slurm.slurmjobs.job import NOT_IN_SLURM, SlurmJobView, of_my_user, read_time, states_in
from kubectl_slurm.slurmjobs.pods import KIND, PodsOnSlurm
from kubectl_slurm.slurmjobs.redbox.answers import StartOfJob
from kubectl_slurm.slurmjobs.redbox.expected_start import expected_starts
from kubectl_slurm.slurmjobs.squeue_format import check_format, heading, line, place, time_used
from kubectl_slurm.terminal.documents import as_json, as_yaml, listing
from kubectl_slurm.terminal.screen import Screen, note, one_line, screen_of
from kubectl_slurm.terminal.table import Cell, Column, render
from kubectl_slurm.terminal.times import clock

TEXT = (
    "What waits and runs: the SlurmJobs of a namespace, and its pods on Slurm, in squeue's columns.\n"
    "Without headings, and in the forms json, yaml, name and squeue's fields, it is SlurmJobs alone."
)
FORMATS = ("wide", "json", "yaml", "name")
OF_UNFINISHED_PODS = frozenset({"PENDING", "PD", "RUNNING", "R", NOT_IN_SLURM})
"""States of pods that have not ended."""
SHORTEST_S, LONGEST_S = 0.5, 3600
COLOURS = {"R": "green", "CG": "green", "PD": "yellow", "S": "yellow", "-": "yellow"}
ShownColumn = tuple[Column, Callable[[SlurmJobView], str | Cell]]
NAMESPACE: ShownColumn = (Column("NAMESPACE", importance=8), lambda job: job.namespace)
TIME_LIMIT: ShownColumn = (Column("TIME_LIMIT", right=True, importance=2), lambda job: job.time_limit)


def coloured(job: SlurmJobView, text: str) -> Cell:
    bad = job.finished and job.phase != "Succeeded"
    return Cell(text, COLOURS.get(job.code, "red" if bad else ""))


def columns_of(*, everywhere: bool, wide: bool, long: bool) -> list[ShownColumn]:
    """squeue's, and with `long` those of squeue --long."""
    state: ShownColumn = (Column("ST", importance=9), lambda job: coloured(job, job.code))
    if long:
        state = (Column("STATE", importance=9), lambda job: coloured(job, job.state or job.code))
    columns: list[ShownColumn] = [
        *((NAMESPACE,) if everywhere else ()),
        (Column("JOBID", right=True, importance=7), lambda job: job.shown_id),
        (Column("PARTITION", importance=3), lambda job: job.partition),
        (Column("NAME", importance=9, longest=32), lambda job: job.name),
        (Column("USER", importance=2), lambda job: job.user),
        state,
        (Column("TIME", right=True, importance=6), time_used),
        *((TIME_LIMIT,) if long else ()),
        (Column("NODES", right=True, importance=1), lambda job: job.nodes),
    ]
    reason: ShownColumn = (Column("NODELIST(REASON)", importance=9), place)
    if not wide:
        return [*columns, reason]
    return [
        *columns,
        (Column("CLUSTER", importance=4), lambda job: job.cluster or job.endpoint),
        *(() if long else (TIME_LIMIT,)),
        (Column("SUBMIT_TIME", importance=2), lambda job: clock(job.submitted_at)),
        (Column("ATTEMPT", right=True, importance=1), lambda job: str(job.attempt)),
        reason,
        (Column("MESSAGE", importance=4), lambda job: job.message),
    ]


def start_columns(starts: Mapping[str, StartOfJob], *, everywhere: bool) -> list[ShownColumn]:
    """Those of squeue --start."""

    def start(job: SlurmJobView) -> StartOfJob:
        return starts.get(job.uid, StartOfJob())

    columns = columns_of(everywhere=everywhere, wide=False, long=False)
    return [
        *(column for column in columns if column[0].heading not in {"TIME", "NODES", "NODELIST(REASON)"}),
        (Column("START_TIME", importance=8), lambda job: clock(read_time(start(job).starts_at)) or "N/A"),
        (Column("NODES", right=True, importance=1), lambda job: job.nodes),
        (Column("SCHEDNODES", importance=2), lambda job: start(job).nodes),
        (Column("NODELIST(REASON)", importance=9), place),
    ]


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    options = _parser(command).parse_args(words)
    if options.watch is not None and options.output in {"json", "yaml"}:
        raise BadUsage(f"--watch redraws a table: leave out --output={options.output}")
    if options.start and (options.watch is not None or options.output):
        raise BadUsage("--start is a table of Slurm's estimates: leave out --watch and --output")
    if options.output and "%" in options.output:
        check_format(options.output)
    elif options.output and options.output not in FORMATS:
        raise BadUsage(f"--output: one of {', '.join(FORMATS)}, or squeue's fields such as '%i %j %T'")
    options.names += [name for name in options.jobs.split(",") if name]
    states_in(options.states)
    call = invocation_of(options, given, environment)
    pods = _pods(call, options)
    jobs = _listed(call, options, pods)
    elsewhere = check_partitions(call.kubectl, options.partition, jobs, everywhere=options.all_namespaces)
    if options.watch is not None:
        return _watch(call, options, jobs, pods)
    if pods is not None and pods.trouble:
        note(f"kubectl slurm: {pods.trouble}")
    missing = _missing(jobs, options.names)
    if missing and len(missing) == len(options.names):
        raise _not_there(call, options, missing)
    call.screen.write(_text(call, options, jobs))
    if missing:
        note(f"kubectl slurm: {_not_there(call, options, missing)}")
    if elsewhere:
        note(f"kubectl slurm: {elsewhere}")
    return EXIT_FAILED if missing or elsewhere else 0


def _pods(call: Invocation, options: argparse.Namespace) -> PodsOnSlurm | None:
    """Of tables for people: a script passes what it reads to commands that take SlurmJobs alone."""
    if options.noheader or options.output not in {None, "wide"}:
        return None
    ended = bool(options.names) or not states_in(options.states) <= OF_UNFINISHED_PODS
    return PodsOnSlurm(call.kubectl, everywhere=options.all_namespaces, with_ended=ended)


def _listed(call: Invocation, options: argparse.Namespace, pods: PodsOnSlurm | None) -> list[SlurmJobView]:
    """At the same time as the pods: each takes a tenth of a second."""
    everywhere = options.all_namespaces
    if pods is None:
        return list_jobs(call.kubectl, everywhere=everywhere)
    with ThreadPoolExecutor(1) as thread:
        current_pods = thread.submit(pods.current)
        jobs = list_jobs(call.kubectl, everywhere=everywhere)
        return sorted([*jobs, *current_pods.result()], key=oldest_first)


def _missing(jobs: Sequence[SlurmJobView], names: Sequence[str]) -> list[str]:
    return [name for name in names if not any(job.is_called(name) for job in jobs)]


def _not_there(call: Invocation, options: argparse.Namespace, names: Sequence[str]) -> ObjectNotFound:
    where = "" if options.all_namespaces else f" in namespace {call.kubectl.namespace}"
    return ObjectNotFound(
        f"there is no SlurmJob {', '.join(map(one_line, names))}{where}, by name or Slurm job id: {LISTED}"
    )


def _parser(command: str) -> argparse.ArgumentParser:
    parser = parser_of(command, TEXT)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="of all namespaces that you may see"
    )
    parser.add_argument("--me", action="store_true", help="only jobs of my Unix user")
    parser.add_argument("-u", "--user", metavar="NAMES", default="", help="only of these Unix users: a,b")
    parser.add_argument("-j", "--jobs", metavar="IDS", default="", help="only these Slurm job ids: 11,12")
    parser.add_argument(
        "--service-account", default="default", metavar="NAME", help="the account whose Unix user is me"
    )
    parser.add_argument("-p", "--partition", metavar="NAMES", help="only of these partitions: a,b")
    parser.add_argument(
        "-t",
        "--states",
        metavar="STATES",
        default="",
        help="Slurm's states (PD,RUNNING), or all: ended ones too",
    )
    parser.add_argument(
        "-w", "--watch", nargs="?", type=_seconds, const=2.0, metavar="SECONDS", help="redraw, every 2 s"
    )
    parser.add_argument(
        "--start",
        action="store_true",
        help="when waiting jobs start, as Slurm expects it; needs what top needs",
    )
    parser.add_argument("-l", "--long", action="store_true", help="states in full, and time limits")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FORM",
        help="wide, json, yaml, name, or squeue's fields: '%%i %%.8j %%T' (letters of squeue --format)",
    )
    parser.add_argument("--noheader", action="store_true", help="no headings")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds: write --watch last") from None
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise argparse.ArgumentTypeError("between 0.5 and 3600 seconds")
    return seconds


def _watch(
    call: Invocation, options: argparse.Namespace, jobs: Sequence[SlurmJobView], pods: PodsOnSlurm | None
) -> int:
    """On a terminal the screen is drawn again; elsewhere each state that differs from the last is printed."""
    last, trouble, refusals, noted = "", "", 0, ""
    while True:
        of_pods = pods.trouble if pods else ""
        screen = screen_of(sys.stdout, os.environ)  # its size may change
        text = _text(replace(call, screen=screen), options, jobs)
        if screen.is_terminal:
            now = f"{datetime.now().astimezone():%H:%M:%S}"
            first = f"{now}  {one_line(trouble or of_pods) or 'Ctrl-C ends this.'}"[: screen.width]
            screen.clear()
            screen.write(f"{first}\n{_as_high_as(screen, text)}")
        elif text != last and not trouble:
            screen.write(text)
        if of_pods not in {"", noted} and not screen.is_terminal:
            note(f"kubectl slurm: {of_pods}")
        time.sleep(options.watch)
        last, noted = text, of_pods
        try:
            jobs, trouble, refusals = _listed(call, options, pods), "", 0
        except Refusal as error:
            refusals = 0 if isinstance(error, NotAnswered) else refusals + 1
            if refusals > MOST_REFUSALS:
                raise
            if not screen.is_terminal and not trouble:
                note(f"{error}; trying again")
            trouble = f"as it was: {error}"


def _as_high_as(screen: Screen, text: str) -> str:
    """What fits below the first line: more of it would scroll the heading away."""
    lines = text.splitlines()
    room = (screen.height or 24) - 3
    if len(lines) <= room + 1:
        return text
    return "\n".join([*lines[:room], f"... and {len(lines) - room} more"]) + "\n"


def _text(call: Invocation, options: argparse.Namespace, jobs: Sequence[SlurmJobView]) -> str:
    everywhere = options.all_namespaces
    if options.me:
        jobs = of_my_user(jobs, call.kubectl.namespace, options.service_account)
    jobs = [job for job in jobs if _is_wanted(job, options)]
    match options.output:
        case "json":
            return as_json(listing([job.obj for job in jobs]))
        case "yaml":
            return as_yaml(listing([job.obj for job in jobs]))
        case "name":
            return "".join(f"slurmjob.redbox.dev/{job.name}\n" for job in jobs)
        case str() as fields if "%" in fields:
            headings = [] if options.noheader else [heading(fields)]
            return "".join(f"{text}\n" for text in (*headings, *(line(fields, job) for job in jobs)))
    if options.start:
        jobs = [job for job in jobs if job.state == "PENDING"]
    if not jobs and call.screen.is_terminal and options.watch is None:
        where = "" if everywhere else f" of namespace {call.kubectl.namespace}; {ANOTHER_NAMESPACE}"
        is_any = not options.states and not options.start
        note(f"{'Nothing waits or runs' if is_any else 'There is no such job'}{where}.")
    if options.start:
        starts = expected_starts(call.kubectl, [job for job in jobs if not job.name.startswith(KIND)])
        jobs = sorted(jobs, key=lambda job: starts.get(job.uid, StartOfJob()).starts_at or "~")
        columns = start_columns(starts, everywhere=everywhere)
    else:
        columns = columns_of(everywhere=everywhere, wide=options.output == "wide", long=options.long)
    return render(
        [column for column, _ in columns],
        [[value(job) for _, value in columns] for job in jobs],
        call.screen,
        headings=not options.noheader,
    )


def _is_wanted(job: SlurmJobView, options: argparse.Namespace) -> bool:
    if options.user and job.user not in options.user.split(","):
        return False
    if options.names and not any(map(job.is_called, options.names)):
        return False
    if options.partition and not job.is_of_partition(options.partition):
        return False
    if states := states_in(options.states):
        return job.is_in(states)
    return bool(options.names) or not job.finished
