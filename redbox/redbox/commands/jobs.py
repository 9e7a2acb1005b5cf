"""`redbox jobs` and `redbox cancel`: your own jobs."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

import typer

from redbox.commands.exit_codes import say
from redbox.commands.local_client import SocketOption, call
from redbox.commands.output import Columns, OutputFormat, OutputOption, show_list, show_one
from redbox_api.client import RedboxClient
from redbox_api.models import Job, Phase

KeyArgument = Annotated[str, typer.Argument(help="The key under which the job was submitted.")]
AttemptOption = Annotated[int, typer.Option("--attempt", min=1, help="The attempt of the key.")]

COLUMNS: Columns = {
    "KEY": attrgetter("key"),
    "ATTEMPT": attrgetter("attempt"),
    "PHASE": attrgetter("phase"),
    "STATE": attrgetter("state"),
    "JOBID": attrgetter("job_id"),
    "NAME": attrgetter("name"),
    "PARTITION": attrgetter("partition"),
    "EXIT": attrgetter("exit_code"),
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
    force: Annotated[
        bool, typer.Option("--force", help="Cancel a running pod at once, without its grace period.")
    ] = False,
    socket: SocketOption = None,
) -> None:
    """Cancel a job. If no job has this key yet, one that is submitted later under it is rejected."""
    cancelled = call(
        socket, lambda client: client.cancel_job(key, attempt=attempt, all_attempts=all_attempts, force=force)
    )
    for job in cancelled:
        outcome = f"job {job.job_id} is being cancelled ({job.phase})"
        if job.job_id is None:
            outcome = "will be cancelled as soon as Slurm has assigned its id"
        say(f"{job.key} attempt {job.attempt}: {outcome}")
