"""`redbox recover`: rebuilds a lost journal from the marks on Slurm's records, by way of `jobs.recovery`."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Annotated

import typer

from redbox.agents.errors import AgentError
from redbox.agents.pool import AgentPool
from redbox.commands.config_option import ConfigOption
from redbox.commands.exit_codes import exit_with, say
from redbox.core.clock import SystemClock
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManager, WorkloadManagerError
from redbox.core.yaml_document import DocumentError
from redbox.jobs.errors import JobsError
from redbox.jobs.record.marks import Marks, read_secret
from redbox.jobs.recovery import RecoveryResult, write
from redbox.jobs.recovery import recover as recover_jobs
from redbox.jobs.store.journal import Journal
from redbox.server.observer import find_observer
from redbox.server.transports import transport_of
from redbox.settings import SETTINGS_FILE, RedboxSettings, load_settings
from redbox.setup.checks.observed_node import ObservedNode, observed_node
from redbox.slurm.slurm_manager import SlurmManager
from redbox_api.log import configure_log


def recover(
    *,
    user: Annotated[
        list[str] | None,
        typer.Option(
            help="Search for ended jobs of this user; may be repeated [default: all of mapping.users_group]."
        ),
    ] = None,
    config: ConfigOption = SETTINGS_FILE,
) -> None:
    """Rebuild a lost journal from Slurm's records of the jobs, which carry red-box's marks.

    Stop the server first, and run this as the account redbox. A server that starts on the new journal rejects
    new jobs for some minutes, since submits of the old one may still reach Slurm.
    """
    configure_log(sys.stderr)
    try:
        settings = load_settings(config)
        _require_owner(settings.jobs.journal)
        recovered = asyncio.run(recover_journal(settings, list(_users(settings, user))))
    except (DocumentError, JobsError) as error:
        exit_with(str(error))
    except (AgentError, WorkloadManagerError, TimeoutError) as error:
        exit_with(f"Slurm does not answer, nothing was written; try again: {error}", os.EX_TEMPFAIL)
    for rejected in recovered.rejected:
        say(f"skipped: job {rejected.job.job_id} of uid {rejected.job.uid}: {rejected.why}", err=True)
    if not recovered.complete:
        say(
            "Jobs may be missing: Slurm hides some, or its accounting did not answer. See redbox check.",
            err=True,
        )
    say(f"Wrote {len(recovered.records)} jobs to the new journal in {settings.jobs.journal}.")


async def recover_journal(settings: RedboxSettings, users: list[UnixUser]) -> RecoveryResult:
    """Rebuild the journal; it is opened first, so that no server can start meanwhile."""
    clock = SystemClock()
    with closing(Journal(settings.jobs.journal)) as journal:
        async with workload_of(settings) as workload:
            marks = Marks(read_secret(settings.jobs.mark_secret), (await workload.cluster()).name)
            recovered = await recover_jobs(workload, marks, clock, settings.jobs, users)
        await write(journal, recovered, clock.now())
        return recovered


@asynccontextmanager
async def workload_of(settings: RedboxSettings) -> AsyncIterator[WorkloadManager]:
    """Return Slurm with the transport and observer of the server."""
    transport = transport_of(settings.agents, settings.jobs.journal)
    async with AgentPool(transport, settings.agents.pool) as pool:
        yield SlurmManager(pool, await find_observer(settings, transport), settings.slurm)


def _require_owner(directory: Path) -> None:
    """Exit unless this is the directory's owner: the server could not open files of another account."""
    try:
        owner = directory.stat().st_uid
    except OSError as error:
        exit_with(f"{directory} cannot be read: {error.strerror}; set jobs.journal to an existing directory")
    if owner != os.geteuid():
        name = _name_of(owner)
        exit_with(
            f"the journal belongs to {name}; run it as that account: runuser -u {name} -- redbox recover"
        )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _users(settings: RedboxSettings, names: list[str] | None) -> Iterator[UnixUser]:
    if settings.agents.accounts_on_login_node:
        try:
            with observed_node(settings) as node:
                yield from _users_of_login_node(node, settings.mapping.users_group, names)
        except OSError as error:
            exit_with(f"the login node does not answer, nothing was written: {error}", os.EX_TEMPFAIL)
        return
    for name in names if names is not None else _members(settings):
        try:
            yield UnixUser(name, pwd.getpwnam(name).pw_uid)
        except KeyError:
            if names is not None:
                exit_with(f"there is no user {name!r} on this host")


def _users_of_login_node(node: ObservedNode, group: str, names: list[str] | None) -> Iterator[UnixUser]:
    for name in names if names is not None else node.members(group):
        account = node.account(name)
        if account is not None:
            yield UnixUser(account.name, account.uid)
        elif names is not None:
            exit_with(f"there is no user {name!r} on the login node")


def _members(settings: RedboxSettings) -> list[str]:
    if settings.agents.transport == "self":
        return [_name_of(os.geteuid())]
    try:
        group = grp.getgrnam(settings.mapping.users_group)
    except KeyError:
        exit_with(
            f"there is no group {settings.mapping.users_group} on this host; name the users with --user"
        )
    primary = (account.pw_name for account in pwd.getpwall() if account.pw_gid == group.gr_gid)
    return list(dict.fromkeys([*group.gr_mem, *primary]))
