"""`redbox jobs` and `redbox cancel`: your own jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from redbox.commands.local_client import SocketOption, call
from redbox.commands.output import Columns, OutputFormat, OutputOption, show_list, show_one
from redbox_api.client import RedboxClient
from redbox_api.models import Job, Phase

KeyArgument = Annotated[str, typer.Argument(help="The key under which the job was submitted.")]
AttemptOption = Annotated[int, typer.Option("--attempt", min=1, help="The attempt of the key.")]

COLUMNS: Columns = {
    "KEY": lambda job: job.key,
    "ATTEMPT": lambda job: job.attempt,
    "PHASE": lambda job: job.phase,
    "STATE": lambda job: job.state,
    "JOBID": lambda job: job.job_id,
    "NAME": lambda job: job.name,
    "PARTITION": lambda job: job.partition,
    "EXIT": lambda job: job.exit_code,
    "REASON": lambda job: job.message or job.reason,
}


def jobs(
    key: Annotated[str | None, typer.Argument(help="Show all fields of the job with this key.")] = None,
    *,
    attempt: AttemptOption = 1,
    phase: Annotated[
        list[Phase] | None, typer.Option(help="List only jobs in this phase; may be repeated.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="For operators: list only jobs of this namespace.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
    socket: SocketOption = None,
) -> None:
    """List your jobs, or show one."""
    if key is not None:
        show_one(call(socket, lambda client: client.get_job(key, attempt=attempt)), output)
        return
    filters: dict[str, str | list[str]] = {"phase": [*phase]} if phase else {}
    filters |= {"namespace": namespace} if namespace else {}
    show_list(call(socket, lambda client: _all(client, **filters)), COLUMNS, output)


async def _all(client: RedboxClient, **filters: str | list[str]) -> list[Job]:
    return [job async for page in client.list_jobs(**filters) for job in page.items]


def cancel(
    key: KeyArgument,
    *,
    attempt: AttemptOption = 1,
    all_attempts: Annotated[
        bool, typer.Option("--all-attempts", help="Cancel all attempts, and reject later ones.")
    ] = False,
    socket: SocketOption = None,
) -> None:
    """Cancel a job. If no job has this key yet, one that is submitted later under it is rejected."""

    async def cancel_job(client: RedboxClient) -> list[Job]:
        return await client.cancel_job(key, attempt=attempt, all_attempts=all_attempts)

    for job in call(socket, cancel_job):
        typer.echo(f"{job.key} attempt {job.attempt}: {_outcome(job)}")


def _outcome(job: Job) -> str:
    if job.job_id is None:
        return "will be cancelled as soon as Slurm has assigned its id"
    return f"job {job.job_id} is being cancelled ({job.phase})"
