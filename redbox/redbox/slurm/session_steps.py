"""The command that starts a session's step, in a job or in a task of an array."""

from __future__ import annotations

from collections.abc import Sequence

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import JobHandle, WorkloadManagerError
from redbox.slurm.commands.srun import overlap_argv
from redbox.slurm.job_queries import JobQueries, is_same_job
from redbox_api.hostlists import expand

MOST_SHOWN = 20


class SessionSteps:
    """Names the job or the task that a session enters as every release of srun accepts it."""

    def __init__(self, queries: JobQueries) -> None:
        self._queries = queries

    async def argv(
        self, user: UnixUser, job_id: str, node: str, name: str, program: Sequence[str]
    ) -> list[str]:
        """Raises WorkloadManagerError for a task that squeue does not show, or for a node of another."""
        if "_" in job_id:
            job_id, nodes = await self._own_id_of_task(user, job_id)
            node = node or next(iter(nodes), "")
            if nodes and node not in nodes:
                raise WorkloadManagerError(
                    f"node {node} is not one of the task's nodes: {', '.join(nodes[:MOST_SHOWN])}"
                )
        return overlap_argv(job_id, node, name, program)

    async def check_job(self, user: UnixUser, job_id: str, mark: str) -> None:
        """Raise WorkloadManagerError if Slurm has given the id to another job since the last poll."""
        leader = job_id.partition("+")[0]
        rows = await self._queries.rows_of(user, [leader])
        if not rows or not is_same_job(JobHandle(leader, mark, "", user), rows):
            raise WorkloadManagerError(f"job {leader} of Slurm is not this job any more")

    async def _own_id_of_task(self, user: UnixUser, job_id: str) -> tuple[str, list[str]]:
        """And its nodes. Srun of Slurm 22.05 rejects 7_1; every release takes its id as a job."""
        index = job_id.partition("_")[2]
        for row in await self._queries.rows_of(user, [job_id]):
            if row.array_task == index:
                return row.job_id, expand(row.nodes)
        raise WorkloadManagerError(f"squeue does not show task {index} as running")
