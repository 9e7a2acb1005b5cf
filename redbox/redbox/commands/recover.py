"""`redbox recover`: a journal that was lost, rebuilt from the marks on Slurm's own records.

How that is done, and what is believed, is in `jobs.recover`.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Annotated

import typer

from redbox.agents.errors import AgentError
from redbox.agents.pool import AgentPool
from redbox.commands.exit_codes import LATER, end
from redbox.commands.tokens import ConfigOption
from redbox.core.clock import SystemClock
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManager, WorkloadManagerError
from redbox.core.yaml_document import DocumentError
from redbox.jobs.errors import JobsError
from redbox.jobs.record.marks import Marks, read_secret
from redbox.jobs.recovery import RecoveryResult, write
from redbox.jobs.recovery import recover as recover_jobs
from redbox.jobs.store.journal import Journal
from redbox.server.transports import observer_of, transport_of
from redbox.settings import SETTINGS_FILE, Settings, load_settings
from redbox.slurm.slurm_manager import SlurmManager


def recover(
    *,
    user: Annotated[
        list[str] | None,
        typer.Option(
            help="Whose ended jobs to look for; may be repeated [default: all of mapping.users_group]."
        ),
    ] = None,
    config: ConfigOption = SETTINGS_FILE,
) -> None:
    """Rebuild a journal that was lost, from the marks that jobs carry in Slurm. The server must not run.

    Run it as the account redbox. The new journal is fenced: for some minutes the server that starts on it
    refuses new jobs, since what the lost one had sent may still arrive.
    """
    try:
        settings = load_settings(config)
        _refuse_others(settings.jobs.journal)
        recovered = asyncio.run(recover_journal(settings, list(_users(settings, user))))
    except (DocumentError, JobsError) as error:
        end(str(error))
    except (AgentError, WorkloadManagerError, TimeoutError) as error:
        end(f"Slurm does not answer, and nothing was written: {error}", LATER)
    for rejected in recovered.rejected:
        typer.echo(
            f"not believed: job {rejected.job.job_id} of uid {rejected.job.uid}: {rejected.why}", err=True
        )
    if not recovered.complete:
        typer.echo("Jobs may be missing: Slurm hides some, or its accounting did not answer.", err=True)
    typer.echo(f"{len(recovered.records)} jobs are in the new journal in {settings.jobs.journal}.")


async def recover_journal(settings: Settings, users: list[UnixUser]) -> RecoveryResult:
    """Open the new journal first, so that no server can start meanwhile."""
    clock = SystemClock()
    with closing(Journal(settings.jobs.journal)) as journal:
        async with workload_of(settings) as workload:
            marks = Marks(read_secret(settings.jobs.mark_secret), (await workload.cluster()).name)
            recovered = await recover_jobs(workload, marks, clock, settings.jobs, users)
        await write(journal, recovered, clock.now())
        return recovered


@asynccontextmanager
async def workload_of(settings: Settings) -> AsyncIterator[WorkloadManager]:
    """Slurm, as the server would ask it."""
    async with AgentPool(transport_of(settings.agents), settings.agents.pool) as pool:
        yield SlurmManager(pool, observer_of(settings.agents), settings.slurm)


def _refuse_others(directory: Path) -> None:
    """What root writes there, the server could not open."""
    try:
        owner = directory.stat().st_uid
    except OSError as error:
        end(f"{directory} cannot be looked at: {error.strerror}")
    if owner != os.geteuid():
        name = _name_of(owner)
        end(
            f"the journal belongs to {name}: run it as that account, with runuser -u {name} -- redbox recover"
        )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _users(settings: Settings, named: list[str] | None) -> Iterator[UnixUser]:
    for name in named if named is not None else _everybody(settings):
        try:
            yield UnixUser(name, pwd.getpwnam(name).pw_uid)
        except KeyError:
            if named is not None:
                end(f"this host has no user {name!r}")


def _everybody(settings: Settings) -> list[str]:
    if settings.agents.transport == "self":
        return [_name_of(os.geteuid())]
    try:
        return grp.getgrnam(settings.mapping.users_group).gr_mem
    except KeyError:
        end(f"this host has no group {settings.mapping.users_group}: name the users with --user")
