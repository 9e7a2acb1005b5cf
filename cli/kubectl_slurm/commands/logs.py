"""`logs`: a job's output, of all attempts, of one stream, or of one task."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from kubectl_slurm.errors import BadUsage, PluginError
from kubectl_slurm.options import invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import get_job_or_task
from kubectl_slurm.slurmjobs.following import going_on, until_begun
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.output import (
    STREAMS,
    TaskFilter,
    follow_output,
    print_output,
    write_stdout,
)
from kubectl_slurm.slurmjobs.stream_output import copy_attempt, copy_stream
from kubectl_slurm.terminal.screen import note
from kubectl_slurm.terminal.times import UNITS_OF_TIME

TEXT = "A job's output. Without -f what there is now; with it from the start until the job ends."


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT)
    parser.add_argument("name", metavar="NAME", help="a SlurmJob, or its Slurm job id")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="until the job ends; Ctrl-C leaves it alone"
    )
    stream = parser.add_mutually_exclusive_group()
    for name in STREAMS:
        stream.add_argument(
            f"--{name}", dest="stream", action="store_const", const=name, help=f"{name} alone"
        )
    parser.add_argument(
        "--task", type=int, metavar="INDEX", help="of one task of an array, once that has ended"
    )
    parser.add_argument(
        "--attempt", type=int, metavar="N", help="of an attempt before the newest (--backoff-limit)"
    )
    parser.add_argument("--tail", type=_count, metavar="LINES", help="the last lines of what there is now")
    parser.add_argument(
        "--since", type=_seconds, metavar="TIME", help="what was written since then: 90s, 10m, 6h or 7d ago"
    )
    options = parser.parse_args(words)
    part = {"tailLines": options.tail, "sinceSeconds": options.since}
    part = {name: value for name, value in part.items() if value is not None}
    call = invocation_of(options, given, environment)
    job, named_task = get_job_or_task(call.kubectl, options.name)
    options.task = named_task if options.task is None else options.task
    _refuse_contradictions(job, options, part)
    task = TaskFilter(options.task, write_stdout) if options.task is not None else None
    write = task or write_stdout
    if options.attempt not in {None, job.attempt}:
        copy_attempt(call.kubectl, job.as_of_attempt(options.attempt), write, options.stream)
    elif options.follow and not job.finished:
        with going_on(lambda: job):
            first = job.attempt
            job = until_begun(call.kubectl, job)
            if not job.in_slurm:
                raise PluginError(f"{job.name} has no output: {job.message or 'it was never submitted'}")
            if options.stream:
                copy_stream(call.kubectl, job, write, options.stream, follow=True, since=first)
            else:
                follow_output(call.kubectl, job, write, since=first)
    elif part:
        print_output(call.kubectl, job, write, part=part)
    elif options.stream:
        copy_stream(call.kubectl, job, write, options.stream, follow=False)
    else:
        print_output(call.kubectl, job, write)
    if task is not None:
        task.finish()
        if not task.found:
            note(f"{job.name} has no task {options.task}, or that has not ended: its output is shown then.")
            return 1
    return 0


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def _seconds(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or not int(number) or unit not in UNITS_OF_TIME:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 10m, 6h or 7d")
    return int(number) * UNITS_OF_TIME[unit]


def _refuse_contradictions(job: SlurmJobView, options: argparse.Namespace, part: Mapping[str, int]) -> None:
    if part and (options.follow or options.stream or options.task is not None or options.attempt is not None):
        raise BadUsage(
            "--tail and --since are of both streams as they are now: leave out -f, --stdout, --stderr, "
            "--task and --attempt"
        )
    if options.task is not None and options.stream:
        raise BadUsage("--task shows both streams: leave out --stdout and --stderr")
    if options.task is not None and not job.is_array and job.in_slurm:
        raise BadUsage(f"{job.name} is not an array, so it has no task {options.task}")
    if options.attempt is not None and not 1 <= options.attempt <= job.attempt:
        had = "one attempt" if job.attempt == 1 else f"{job.attempt} attempts"
        raise BadUsage(f"{job.name} has had {had}: --attempt counts from 1")
