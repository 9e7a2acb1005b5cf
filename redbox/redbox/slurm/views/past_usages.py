"""From sacct's rows to what each ended job used: the last run of a job, and of each task of an array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redbox.core.workload_manager import PastUsage
from redbox.slurm.commands.ended_usage import UsageRow
from redbox.slurm.text.states import has_ended
from redbox.slurm.views.accounting_jobs import RESIZED, order_of_runs


def build_past_usages(rows: Iterable[UsageRow]) -> tuple[PastUsage, ...]:
    """The jobs that have ended as a whole, as far as the accounting has it.

    A run whose nodes were changed has a row for each size, one after the other.
    """
    jobs: dict[tuple[str, str], dict[str, list[UsageRow]]] = {}
    for row in sorted(rows, key=order_of_runs):
        parts = jobs.setdefault((row.job_id, row.mark), {})
        before = parts.get(row.raw_id, [])
        parts[row.raw_id] = [*before, row] if before and before[-1].state == RESIZED else [row]
    ended = [
        list(parts.values())
        for parts in jobs.values()
        if all(has_ended(sizes[-1].state) for sizes in parts.values())
    ]
    return tuple(_of_job(parts) for parts in ended)


def _of_job(parts: Sequence[Sequence[UsageRow]]) -> PastUsage:
    """Components of a het job run side by side: they are added up. Tasks of an array are compared."""
    if all(sizes[-1].array_task is None for sizes in parts):
        return _side_by_side(parts)
    tasks = [_side_by_side([sizes]) for sizes in parts]
    measured = [task for task in tasks if task.cpu_s is not None]
    largest = max(tasks, key=lambda task: task.memory_bytes or 0)
    return PastUsage(
        job_id=largest.job_id,
        mark=largest.mark,
        submitted_at=min((task.submitted_at for task in tasks if task.submitted_at), default=None),
        cpus=max(task.cpus for task in tasks),
        elapsed_s=max(task.elapsed_s for task in tasks),
        allocated_cpu_s=sum(task.allocated_cpu_s for task in measured or tasks),
        cpu_s=sum(task.cpu_s or 0.0 for task in measured) if measured else None,
        memory_bytes=largest.memory_bytes,
        allocated_memory_bytes=largest.allocated_memory_bytes,
        time_limit_s=largest.time_limit_s,
    )


def _side_by_side(parts: Sequence[Sequence[UsageRow]]) -> PastUsage:
    """A step's memory is its peak, and so is the largest of the steps, as seff has it; zero is unmeasured."""
    rows = [row for sizes in parts for row in sizes]
    steps = [step for row in rows for step in row.steps]
    peaks = [max((step.memory_bytes for row in sizes for step in row.steps), default=0) for sizes in parts]
    first = rows[0]
    return PastUsage(
        job_id=first.job_id,
        mark=first.mark,
        submitted_at=first.submitted_at,
        cpus=sum(max(row.cpus for row in sizes) for sizes in parts),
        elapsed_s=max(sum(row.elapsed_s for row in sizes) for sizes in parts),
        allocated_cpu_s=sum(row.cpus * row.elapsed_s for row in rows),
        cpu_s=sum(step.cpu_s for step in steps) if steps else None,
        memory_bytes=sum(peaks) or None,
        allocated_memory_bytes=sum(max(row.memory_bytes or 0 for row in sizes) for sizes in parts) or None,
        time_limit_s=parts[0][-1].time_limit_s,
    )
