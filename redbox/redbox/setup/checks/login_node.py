"""Checks of a login node over ssh: what red-box's own logins meet there, from where red-box itself runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from redbox.agents.errors import AgentError
from redbox.agents.settings import SshSettings
from redbox.agents.transports.ssh_ca import SKEW_S, VALID_S
from redbox.core.domain import UnixUser
from redbox.core.yaml_document import DocumentError
from redbox.settings import RedboxSettings
from redbox.setup.checks.callers import rules_of, users_named
from redbox.setup.checks.findings import Finding, fault, warning
from redbox.setup.checks.machine import Machine
from redbox.setup.checks.observed_node import ObservedNode

MOST_USERS = 5
"""Logins that fail count at fail2ban, so only so many users are tried."""


def no_login(ssh: SshSettings, settings: RedboxSettings, error: AgentError) -> Finding:
    """Nothing of the login node can be checked: say what sshd of that host must have."""
    account, group = ssh.observer or "", settings.mapping.users_group
    if ssh.ca_key_file is not None:
        trust = "put the output of redbox sshd into its sshd_config.d, the CA's public key where it says"
    else:
        trust = f"put the public key of {ssh.key_directory}/{account} into its ~/.ssh/authorized_keys"
    return fault(
        f"no agent starts on {ssh.host} as {account}: {error.detail}",
        f"on {ssh.host}: useradd --create-home --password '*' {account}, usermod -aG {group} {account}; "
        f"{trust}, and reload sshd. Its log names the reason of each refusal, for instance an account that "
        "is locked, clocks that differ, or an address that is not in agents.ssh.addresses.",
    )


def check_clock(machine: Machine, node: ObservedNode, ssh: SshSettings) -> Iterator[Finding]:
    """Certificates of five minutes need clocks that agree."""
    if ssh.ca_key_file is None:
        return
    behind_s = (machine.now() - node.now()).total_seconds()
    if not -(VALID_S - SKEW_S) / 3 < behind_s < SKEW_S / 3:
        direction = "behind" if behind_s > 0 else "ahead"
        yield warning(
            f"the clock of {ssh.host} is {abs(behind_s):.0f} s {direction}: its sshd "
            f"refuses certificates from {SKEW_S} s behind and {VALID_S - SKEW_S} s ahead",
            "synchronise both with NTP; chronyc tracking and timedatectl show the state",
        )


def check_agents_of_users(node: ObservedNode, settings: RedboxSettings) -> Iterator[Finding]:
    """An agent starts as the users whom the rules name: nothing else proves that sshd lets them."""
    for user in islice(_users(node, settings), MOST_USERS):
        reason = node.agent_error(user)
        if reason is not None:
            yield fault(
                f"no agent starts on the login node as {user.name}: {reason}",
                f"sshd's log there names the reason; su - {user.name} shows whether the account can log in",
            )


def _users(node: ObservedNode, settings: RedboxSettings) -> Iterator[UnixUser]:
    try:
        rules = rules_of(settings)
    except DocumentError:
        return  # reported by the check of the rules
    for name in dict.fromkeys(name for rule in rules for name in users_named(rule)):
        account = node.account(name)
        if account is not None and account.uid >= settings.mapping.min_uid:
            yield UnixUser(account.name, account.uid)
