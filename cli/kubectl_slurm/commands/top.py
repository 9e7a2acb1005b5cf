"""`top`: what running jobs use, and what ended ones used, of what they have or had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from kubectl_slurm.options import invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import get_job, list_jobs
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.redbox.measurements import measured, measured_at_end
from kubectl_slurm.slurmjobs.usage import ShownUsage, usage_of_ended, usage_of_running
from kubectl_slurm.terminal.screen import note
from kubectl_slurm.terminal.table import Column, Row, render
from kubectl_slurm.terminal.times import elapsed, megabytes
from redbox_shared.sbatch_options import read_duration

TEXT = "What running jobs use, as Slurm measured it last; of a NAME that has ended, what seff shows."
EPILOG = """\
ELAPSED  since the start             TIME%  of the time limit
CPUS     that it has                 CPU%   of these, for as long as it has had them
CPUTIME  of all processes together   MEM%   of REQMEM; of an ended job the peak of its largest step
MEMORY   of all processes            REQMEM that it asked for, or had
? is what Slurm has not measured, or what the SlurmJob does not say. It needs the right to create tokens of
the jobs' service account, and a way from here to red-box."""
COLUMNS = (
    Column("JOBID", right=True, importance=6),
    Column("NAME", importance=9, longest=32),
    Column("ELAPSED", right=True, importance=3),
    Column("TIME%", right=True, importance=2),
    Column("CPUS", right=True, importance=5),
    Column("CPUTIME", right=True, importance=2),
    Column("CPU%", right=True, importance=8),
    Column("MEMORY", right=True, importance=7),
    Column("REQMEM", right=True, importance=4),
    Column("MEM%", right=True, importance=8),
)


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT, epilog=EPILOG)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, also those that have ended")
    parser.add_argument("--noheader", action="store_true", help="no headings")
    options = parser.parse_args(words)
    call = invocation_of(options, given, environment)
    jobs = [get_job(call.kubectl, name) for name in dict.fromkeys(options.names)]
    if jobs:
        for job in jobs:
            if not job.in_slurm or not (job.running or job.finished):
                note(f"{job.name} neither runs in Slurm nor has it ended there: it is {job.phase}.")
    else:
        jobs = [job for job in list_jobs(call.kubectl) if job.running]
    running = [job for job in jobs if job.in_slurm and job.running]
    ended = [job for job in jobs if job.in_slurm and job.finished]
    if not jobs:
        note(f"No SlurmJob of namespace {call.kubectl.namespace} runs.")
    reports = measured(call.kubectl, running)
    reports_at_end = measured_at_end(call.kubectl, ended)
    now = datetime.now(UTC)
    rows = [
        _row(job, usage_of_running(job, reports.get(job.uid), now, read_duration(job.time_limit)))
        for job in running
    ]
    rows += [
        _row(job, usage_of_ended(report))
        for job in ended
        if (report := reports_at_end.get(job.uid)) is not None
    ]
    if rows:
        call.screen.write(render(COLUMNS, rows, call.screen, headings=not options.noheader))
    missing = [job.name for job in running if job.uid not in reports]
    if missing:
        note(f"Slurm has no measurement (yet) of {', '.join(missing)}.")
    return 0


def _row(job: SlurmJobView, used: ShownUsage) -> Row:
    return [
        job.job_id,
        job.name,
        elapsed(used.elapsed_s),
        used.time_share,
        str(used.cpus or "?"),
        "?" if used.cpu_s is None else elapsed(used.cpu_s),
        used.cpu_share,
        "?" if used.memory_mb is None else megabytes(used.memory_mb),
        megabytes(used.memory_mb_had) if used.memory_mb_had else "?",
        used.memory_share,
    ]
