"""Runs all checks of `redbox check`: one run reports everything that is wrong with this login node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from redbox.agents.errors import AgentError
from redbox.agents.settings import SshSettings
from redbox.callers.authenticator import trusted_clusters
from redbox.callers.errors import AuthenticationError
from redbox.callers.identities import Identity, ServiceAccount
from redbox.callers.tokens.opaque_tokens import PREFIX, TokenStore
from redbox.callers.tokens.service_account_tokens import TokenVerifier
from redbox.core.clock import Clock
from redbox.core.yaml_document import DocumentError
from redbox.settings import RedboxSettings, load_settings
from redbox.setup.checks import agents, callers, host, login_node, slurm, tls
from redbox.setup.checks.findings import Finding, fault, note
from redbox.setup.checks.machine import Machine, SlurmHost
from redbox.setup.checks.observed_node import ObservedNode, observed_node
from redbox.setup.checks.orphaned_agents import check_orphaned_agents
from redbox.setup.install.layout import SERVICE_ACCOUNT, Layout

ObserveNode = Callable[[RedboxSettings], AbstractContextManager[ObservedNode]]


def check_everything(machine: Machine, layout: Layout) -> list[Finding]:
    """Return all findings, the worst first; with settings that cannot be read, only their errors."""
    try:
        settings = load_settings(layout.settings)
    except DocumentError as error:
        cure = "fix that line; the file that redbox init writes describes every key"
        return [fault(str(flaw), cure) for flaw in error.flaws]
    return sorted(findings_of(machine, settings, layout), key=lambda finding: -finding.level)


def findings_of(
    machine: Machine, settings: RedboxSettings, layout: Layout, observe: ObserveNode = observed_node
) -> Iterator[Finding]:
    yield from host.check_service_account(machine, settings)
    yield from host.check_settings_files(machine, settings, layout)
    yield from host.check_listening(machine, settings)
    yield from agents.check_agent_files(machine, settings, layout)
    if _can_read_secrets(machine, settings):
        yield from host.check_secrets(machine, settings, layout)
        yield from host.check_mark_secret(machine, settings)
        yield from host.check_journal(machine, settings)
        yield from agents.check_sudoers(machine, settings, layout)
        yield from agents.check_ssh(machine, settings)
    else:
        yield note("secrets, the journal and sudo's rules were not checked", "run redbox check as root")
    yield from check_orphaned_agents(machine, settings, layout)
    yield from tls.check_certificate(machine, settings)
    yield from callers.check_clusters(machine, settings)
    yield from callers.check_clocks(machine, settings)
    ssh = settings.agents.ssh
    if ssh is None:
        yield from _check_slurm_side(machine, machine, settings, layout)
    elif ssh.observer is None or not _can_read_secrets(machine, settings):
        yield from host.check_users_group(machine, settings)
        yield from callers.check_rules(machine, settings)
    else:
        yield from _check_over_ssh(machine, ssh, settings, layout, observe)


def _check_slurm_side(
    accounts: SlurmHost, slurm_host: SlurmHost, settings: RedboxSettings, layout: Layout
) -> Iterator[Finding]:
    yield from host.check_users_group(accounts, settings)
    yield from callers.check_rules(accounts, settings)
    yield from slurm.check_slurm(slurm_host, settings, layout)


def _check_over_ssh(
    machine: Machine, ssh: SshSettings, settings: RedboxSettings, layout: Layout, observe: ObserveNode
) -> Iterator[Finding]:
    """Check the login node from here, as the observer and as the users whom the rules name."""
    accounts = None if ssh.accounts == "login_node" else machine
    try:
        with observe(settings) as node:
            yield from _check_slurm_side(accounts or node, node, settings, layout)
            yield from login_node.check_clock(machine, node, ssh)
            yield from login_node.check_agents_of_users(node, settings)
    except AgentError as error:
        yield login_node.no_login(ssh, settings, error)
        if accounts is not None:
            yield from host.check_users_group(accounts, settings)
        yield from callers.check_rules(accounts, settings)
    except OSError as error:
        yield fault(f"{ssh.host} stopped to answer: {error}", "look at it, then run redbox check again")


def _can_read_secrets(machine: Machine, settings: RedboxSettings) -> bool:
    service = machine.account(SERVICE_ACCOUNT)
    is_service = service is not None and service.uid == machine.uid
    return machine.uid == 0 or is_service or settings.agents.transport == "self"


def check_token(token: str, settings: RedboxSettings, clock: Clock) -> Finding:
    """Return whether the server would accept this token: for `redbox check --token-file`."""
    is_opaque = token.startswith(PREFIX)
    try:
        if is_opaque:
            identity: Identity = TokenStore(settings.callers.tokens_file, clock).holder(token)
        else:
            identity = asyncio.run(_service_account(token, settings, clock))
    except AuthenticationError as error:
        made_by = "redbox token create" if is_opaque else "kubectl create token --audience=..."
        return fault(f"the token is refused: {error}", f"make a new one with {made_by}")
    return note(f"the token is good: {identity}")


async def _service_account(token: str, settings: RedboxSettings, clock: Clock) -> ServiceAccount:
    clusters = trusted_clusters(settings.callers, clock)
    try:
        return (await TokenVerifier(clusters, clock).verify(token)).account
    finally:
        for cluster in clusters:
            await cluster.keys.close()
