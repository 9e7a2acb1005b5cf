"""The account whose agent polls Slurm: red-box's own, or `agents.ssh.observer`.

Where accounts are on the login node only, its uid is what its agent reports. The journal keeps the uid, so
that a start while the login node is away serves the states of the journal, as one while Slurm is away.

A login node that refuses the account is waited for as well. A pod that ended would be started again at once,
and each start would be a login that fails; and a key or host key that is replaced needs no start.
"""

from __future__ import annotations

import os
import pwd

from redbox.agents.errors import AgentRefused, AgentUnavailable
from redbox.agents.startup import AgentLauncher
from redbox.agents.transports.base import Transport
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import WorkloadManagerError
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.sqlite import JournalBatch
from redbox.server.cluster_identity import try_for_a_while, wait_for_slurm
from redbox.settings import RedboxSettings

FACT = "the observer"


async def observer_of(settings: RedboxSettings, transport: Transport, journal: Journal) -> UnixUser:
    """Return the account; raises AgentRefused where it is one of this host that does not exist."""
    if not settings.agents.accounts_on_login_node:
        return _observer_of_host(settings)
    stored = _stored(journal, _name(settings))

    async def ask() -> UnixUser:
        try:
            return await ask_login_node(settings, transport)
        except (AgentUnavailable, AgentRefused) as error:
            raise WorkloadManagerError(error.detail) from error

    if stored is None:
        found = await wait_for_slurm(ask, settings)
    else:
        found = await try_for_a_while(ask) or stored
    if found != stored:
        journal.commit(JournalBatch(facts=((FACT, f"{found.uid} {found.name}"),)), lambda _: None)
    return found


async def ask_login_node(settings: RedboxSettings, transport: Transport) -> UnixUser:
    """Log in as the observer; raises AgentError."""
    return await AgentLauncher(transport, settings.agents.pool.start_s).find_user(_name(settings))


async def find_observer(settings: RedboxSettings, transport: Transport) -> UnixUser:
    """Return the account as it is now, for commands; raises AgentError."""
    if settings.agents.accounts_on_login_node:
        return await ask_login_node(settings, transport)
    return _observer_of_host(settings)


def _observer_of_host(settings: RedboxSettings) -> UnixUser:
    if settings.agents.ssh is None or settings.agents.ssh.observer is None:
        return UnixUser(pwd.getpwuid(os.geteuid()).pw_name, os.geteuid())
    name = settings.agents.ssh.observer
    try:
        return UnixUser(name, pwd.getpwnam(name).pw_uid)
    except KeyError:
        raise AgentRefused(
            f"agents.ssh.observer is {name}, and there is no such account on this host"
        ) from None


def _name(settings: RedboxSettings) -> str:
    ssh = settings.agents.ssh
    if ssh is None or ssh.observer is None:
        raise AgentRefused("agents.ssh.observer is not set: name the account that reads Slurm's queue")
    return ssh.observer


def _stored(journal: Journal, name: str) -> UnixUser | None:
    text = journal.contents.facts.get(FACT, "") if journal.contents else ""
    uid, _, stored_name = text.partition(" ")
    return UnixUser(name, int(uid)) if uid.isdecimal() and stored_name == name else None
