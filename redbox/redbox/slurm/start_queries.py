"""When Slurm expects a waiting job to start: looked up as the job's user, bound to id and mark."""

from __future__ import annotations

from redbox.core.workload_manager import JobHandle
from redbox.slurm.job_queries import JobQueries, is_same_job
from redbox.slurm.views.expected_start import build_expected_start
from redbox_api.models import ExpectedStart


class StartQueries:
    """One squeue for each question; it costs slurmctld no scheduling, which goes on by itself."""

    def __init__(self, queries: JobQueries) -> None:
        self._queries = queries

    async def expected_start(self, handle: JobHandle) -> ExpectedStart | None:
        rows = await self._queries.start_rows_of(handle.user, handle.job_id)
        if not rows or not is_same_job(handle, [row.job for row in rows]):
            return None
        return build_expected_start(rows)
