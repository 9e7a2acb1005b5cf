"""`history`: what has ended, in sacct's columns."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from kubectl_slurm.errors import BadUsage
from kubectl_slurm.options import invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import list_jobs
from kubectl_slurm.slurmjobs.job import SlurmJobView, read_time
from kubectl_slurm.slurmjobs.redbox.answers import UsageAtEnd
from kubectl_slurm.slurmjobs.redbox.measurements import measured_at_end
from kubectl_slurm.slurmjobs.usage import usage_of_ended
from kubectl_slurm.terminal.documents import as_json, as_yaml, listing
from kubectl_slurm.terminal.table import Cell, Column, render
from kubectl_slurm.terminal.times import UNITS_OF_TIME, clock, elapsed

TEXT = "What has ended, the oldest first: SlurmJobs that still exist, in sacct's columns."
EPILOG = """\
START, END and ELAPSED are those of the last run; EXITCODE is the code and the signal, 0:9. --efficiency adds
what each job used of what it had: CPU%, MEM% and TIME%, as `kubectl slurm top NAME` explains them."""
COLUMNS = (
    Column("JOBID", right=True, importance=7),
    Column("NAME", importance=9, longest=32),
    Column("PARTITION", importance=3),
    Column("USER", importance=1),
    Column("NODES", right=True, importance=1),
    Column("START", importance=2),
    Column("END", importance=4),
    Column("ELAPSED", right=True, importance=5),
    Column("EXITCODE", right=True, importance=6),
    Column("STATE", importance=9),
)
EFFICIENCY = (
    Column("CPU%", right=True, importance=8),
    Column("MEM%", right=True, importance=8),
    Column("TIME%", right=True, importance=3),
)
LONGEST_AGO = 36500  # days: a longer time leaves the calendar
COLOURS = {"Succeeded": "green", "Failed": "red", "Cancelled": "yellow"}


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT, epilog=EPILOG)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="of all namespaces that you may see"
    )
    parser.add_argument(
        *("-S", "--starttime", "--since"),
        type=point_in_time,
        metavar="TIME",
        help="ended since then: 2026-11-24, 14:30, or 90m, 6h, 7d ago",
    )
    parser.add_argument(
        *("-E", "--endtime", "--until"), type=point_in_time, metavar="TIME", help="ended by then, likewise"
    )
    parser.add_argument(
        "--efficiency",
        action="store_true",
        help="also what each used of what it had; needs what top needs",
    )
    parser.add_argument("-o", "--output", choices=("json", "yaml", "name"), help="another form")
    parser.add_argument("--noheader", action="store_true", help="no headings")
    options = parser.parse_args(words)
    if options.efficiency and (options.all_namespaces or options.output):
        raise BadUsage("--efficiency is a table of one namespace: leave out -A and -o")
    call = invocation_of(options, given, environment)
    jobs = [
        job
        for job in list_jobs(call.kubectl, everywhere=options.all_namespaces)
        if job.finished
        and (not options.names or any(map(job.is_called, options.names)))
        and _ended_within(job, options.starttime, options.endtime)
    ]
    jobs.sort(key=lambda job: ended(job) or datetime.min.replace(tzinfo=UTC))
    match options.output:
        case "json":
            call.screen.write(as_json(listing([job.obj for job in jobs])))
        case "yaml":
            call.screen.write(as_yaml(listing([job.obj for job in jobs])))
        case "name":
            call.screen.write("".join(f"slurmjob.redbox.dev/{job.name}\n" for job in jobs))
        case _:
            columns = [*((Column("NAMESPACE", importance=8),) if options.all_namespaces else ()), *COLUMNS]
            rows = [_row(job, everywhere=options.all_namespaces) for job in jobs]
            if options.efficiency:
                columns[-1:-1] = EFFICIENCY
                reports = measured_at_end(call.kubectl, [job for job in jobs if job.in_slurm])
                for job, row in zip(jobs, rows, strict=True):
                    row[-1:-1] = _shares(reports.get(job.uid))
            call.screen.write(render(columns, rows, call.screen, headings=not options.noheader))
    return 0


def ended(job: SlurmJobView) -> datetime | None:
    """Of one that was never in Slurm there is only the time at which it was refused."""
    return job.ended_at or read_time(job.condition("Finished").get("lastTransitionTime"))


def _ended_within(job: SlurmJobView, since: datetime | None, until: datetime | None) -> bool:
    at = ended(job)
    return at is None or ((since is None or at >= since) and (until is None or at <= until))


def _shares(report: UsageAtEnd | None) -> list[str]:
    if report is None:
        return ["?"] * len(EFFICIENCY)
    used = usage_of_ended(report)
    return [used.cpu_share, used.memory_share, used.time_share]


def _row(job: SlurmJobView, *, everywhere: bool) -> list[str | Cell]:
    state = job.state if job.in_slurm and job.state else (job.reason or job.phase).upper()
    return [
        *((job.namespace,) if everywhere else ()),
        job.job_id or "-",
        job.name,
        job.partition,
        job.user,
        job.nodes,
        clock(job.started_at),
        clock(ended(job)),
        elapsed(job.elapsed_s(datetime.now(UTC))),
        job.exit_status(),
        Cell(state, COLOURS.get(job.phase, "")),
    ]


def point_in_time(text: str) -> datetime:
    """A time of the user's own zone."""
    if found := re.fullmatch(r"([0-9]{1,6})([mhd])", text):
        ago = timedelta(seconds=int(found[1]) * UNITS_OF_TIME[found[2]])
        return datetime.now(UTC) - min(ago, timedelta(days=LONGEST_AGO))
    now = datetime.now().astimezone()
    try:
        if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", text):
            hours, minutes, *_ = map(int, text.split(":"))
            return now.replace(hour=hours, minute=minutes, second=0, microsecond=0)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: 2026-11-24, 14:30, or 90m, 6h, 7d ago"
        ) from None
