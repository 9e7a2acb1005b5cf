"""Checks of agents, sudo and ssh: the account redbox may only start agents, as members of one group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from redbox.agents.install_texts import render_sudoers
from redbox.agents.program.guard import DEFAULT_MIN_UID
from redbox.agents.settings import SshSettings
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, fault, note, warning
from redbox.setup.checks.host import OTHERS_READ, check_writers
from redbox.setup.checks.machine import Machine
from redbox.setup.install.layout import SERVICE_ACCOUNT, Layout

VISUDO, SUDO, SSHD = "/usr/sbin/visudo", "/usr/bin/sudo", "/usr/sbin/sshd"
DEADLINE_S = 20.0
INSTALL_SUDOERS = "run redbox init as root, or install the output of redbox sudoers with visudo -f {}"
# sudo -l wraps at 80 columns, also without a terminal.
WRAPPED = re.compile(r"\n[ \t]+(?![ \t(])")
ALLOWED = re.compile(r"^\s+\(([^)]*)\)\s*(.*)$", re.MULTILINE)
MIN_UID = re.compile(r"^\s*min_uid\s*=\s*([0-9]+)", re.MULTILINE)


def check_agent_files(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """The agent is that of this release, and only root can change it and its limits."""
    if settings.agents.transport != "sudo":
        return
    for problem in machine.agent_problems(layout.agent):
        what, _, cure = problem.rpartition(": ")
        yield fault(what, f"{cure} (redbox init writes it)")
    content = machine.read(layout.agent_settings)
    if content is None:
        yield warning(
            f"there is no {layout.agent_settings}: agents refuse uids below {DEFAULT_MIN_UID}",
            "run redbox init as root, then set min_uid to the limit of your site",
        )
        return
    yield from check_writers(machine, layout.agent_settings)
    match = MIN_UID.search(content.decode(errors="replace"))
    lowest = int(match[1]) if match else DEFAULT_MIN_UID
    if lowest > settings.mapping.min_uid:
        yield note(
            f"agents refuse uids below {lowest}, while mapping.min_uid is {settings.mapping.min_uid}",
            f"set mapping.min_uid to {lowest}, so that red-box rejects these users before it starts an agent",
        )


def check_sudoers(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """The rule allows one file without arguments, as members of one group, and sudo logs no I/O."""
    if settings.agents.transport != "sudo":
        return
    expected = render_sudoers(group=settings.mapping.users_group, agent=str(layout.agent))
    content = machine.read(layout.sudoers)
    if content is None:
        what = f"there is no {layout.sudoers}" if machine.uid == 0 else f"{layout.sudoers} cannot be read"
        cure = INSTALL_SUDOERS.format(layout.sudoers) if machine.uid == 0 else "run redbox check as root"
        yield (fault if machine.uid == 0 else warning)(what, cure)
        return
    if _rules_in(content.decode(errors="replace")) != _rules_in(expected):
        cure = f"replace its content by:\n{expected}"
        yield fault(f"{layout.sudoers} differs from the rule that red-box needs", cure)
    yield from check_writers(machine, layout.sudoers)
    checked = machine.run([VISUDO, "-c"], DEADLINE_S)
    # For files that sudo does not read, visudo prints a warning and exits with 0.
    if checked.code != 0 or checked.stderr.strip():
        yield fault(
            f"sudo's rules are not valid: {checked.summary}", "run visudo -c, and fix the files it names"
        )
    yield from _check_rights(machine, settings, layout)


def _rules_in(text: str) -> list[str]:
    """The lines that are not comments, with single blanks."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]


def _check_rights(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """Check what sudo itself lists for the account, from all files together."""
    if machine.uid != 0:
        yield note("the account redbox's sudo rights were not checked", "run redbox check as root")
        return
    listed = machine.run([SUDO, "-n", "-l", "-U", SERVICE_ACCOUNT], DEADLINE_S)
    rights = ALLOWED.findall(WRAPPED.sub(" ", listed.stdout))
    wanted = f"%{settings.mapping.users_group}"
    if not rights:
        cure = f"{INSTALL_SUDOERS.format(layout.sudoers)}; then run sudo -l -U {SERVICE_ACCOUNT}"
        yield fault(f"sudo allows {SERVICE_ACCOUNT} nothing: {listed.summary}", cure)
    for runas, rest in rights:
        command = rest.removeprefix("NOPASSWD:").strip()
        if runas != wanted or command != f'{layout.agent} ""':
            yield fault(
                f"sudo allows {SERVICE_ACCOUNT} more than red-box needs: ({runas}) {rest}",
                "remove that rule; grep -r redbox /etc/sudoers /etc/sudoers.d finds it",
            )


def check_ssh(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """Host keys are there, users' keys are secret, and sshd trusts the CA for the group only."""
    ssh = settings.agents.ssh
    if ssh is None:
        return
    if not (machine.read(ssh.known_hosts) or b"").strip():
        cure = f"ssh-keyscan -p {ssh.port} {ssh.host} > {ssh.known_hosts}, then compare the key on that host"
        yield fault(f"{ssh.known_hosts} has no host key of {ssh.host}: red-box cannot connect to it", cure)
    if ssh.key_directory is not None:
        permissions = machine.permissions(ssh.key_directory)
        if permissions is None:
            yield fault(
                f"there is no directory {ssh.key_directory}",
                "make it, and put a private key for each user into it",
            )
        elif permissions.is_open_to(OTHERS_READ):
            cure = f"chmod 0700 {ssh.key_directory}"
            yield fault(f"other users can read {ssh.key_directory}, which holds users' private keys", cure)
    yield from _check_sshd(machine, ssh)


def _check_sshd(machine: Machine, ssh: SshSettings) -> Iterator[Finding]:
    """Check this host's sshd: it must not trust the CA outside of the group, above all not for root."""
    if ssh.ca_key_file is None:
        return
    if machine.permissions(Path(SSHD)) is None:
        yield note(
            "sshd was not checked: it is not on this host",
            "on the login node run sshd -T -C user=root,host=x,addr=127.0.0.1: it must print "
            "trustedusercakeys none",
        )
        return
    shown = machine.run([SSHD, "-T", "-C", "user=root,host=localhost,addr=127.0.0.1"], DEADLINE_S)
    if shown.code != 0:
        yield warning(f"sshd did not print its settings: {shown.summary}", "run redbox check as root")
    elif "trustedusercakeys none" not in shown.stdout.lower():
        yield fault(
            "sshd trusts a CA for user certificates for root too",
            "put TrustedUserCAKeys inside Match Group, as in the output of redbox sshd, and reload sshd",
        )
