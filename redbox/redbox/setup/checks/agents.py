"""Checks of what starts agents: the one right that the account redbox has must be exactly that one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from redbox.agents.install_texts import render_sudoers
from redbox.agents.program.guard import DEFAULT_MIN_UID
from redbox.agents.settings import SshSettings
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, fault, note, warning
from redbox.setup.checks.host import OTHERS_READ, writable_by_others
from redbox.setup.checks.machine import Machine
from redbox.setup.install.layout import SERVICE_ACCOUNT, Layout

VISUDO, SUDO, SSHD = "/usr/sbin/visudo", "/usr/bin/sudo", "/usr/sbin/sshd"
DEADLINE_S = 20.0
PUT_SUDOERS = "run redbox init as root, or put there what redbox sudoers prints: visudo -f {}"
WRAPPED = re.compile(
    r"\n[ \t]+(?![ \t(])"
)  # sudo -l wraps at 80 columns, also where nobody looks at a terminal
ALLOWED = re.compile(r"^\s+\((?P<runas>[^)]*)\)\s*(?P<rest>.*)$", re.MULTILINE)
MIN_UID = re.compile(r"^\s*min_uid\s*=\s*([0-9]+)", re.MULTILINE)


def check_agent_files(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """The agent is this release's and root's; its limits are root's."""
    if settings.agents.transport != "sudo":
        return
    for flaw in machine.agent_flaws(layout.agent):
        what, _, cure = flaw.rpartition(": ")
        yield fault(what, f"{cure} (redbox init writes it)")
    content = machine.read(layout.agent_settings)
    if content is None:
        yield warning(
            f"there is no {layout.agent_settings}: agents refuse uids below {DEFAULT_MIN_UID}",
            "run redbox init, and set the limit that your site has",
        )
        return
    for place in writable_by_others(machine, layout.agent_settings, {0}):
        yield fault(
            f"{place} may be written by others than root", f"chown root {place} && chmod go-w {place}"
        )
    found = MIN_UID.search(content.decode(errors="replace"))
    lowest = int(found[1]) if found else DEFAULT_MIN_UID
    if lowest > settings.mapping.min_uid:
        yield note(
            f"agents refuse uids below {lowest}, while mapping.min_uid is {settings.mapping.min_uid}",
            f"set mapping.min_uid to {lowest}: callers are then told at once",
        )


def check_sudoers(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """One line for one file without arguments, as members of one group, and nothing of it logged."""
    if settings.agents.transport != "sudo":
        return
    expected = render_sudoers(group=settings.mapping.users_group, agent=str(layout.agent))
    content = machine.read(layout.sudoers)
    if content is None:
        what = f"there is no {layout.sudoers}" if machine.uid == 0 else f"{layout.sudoers} cannot be read"
        cure = PUT_SUDOERS.format(layout.sudoers) if machine.uid == 0 else "run redbox check as root"
        yield (fault if machine.uid == 0 else warning)(what, cure)
        return
    if _rules_in(content.decode(errors="replace")) != _rules_in(expected):
        cure = f"replace it by:\n{expected}"
        yield fault(f"{layout.sudoers} says something else than red-box needs", cure)
    for place in writable_by_others(machine, layout.sudoers, {0}):
        yield fault(
            f"{place} may be written by others than root", f"chown root {place} && chmod go-w {place}"
        )
    checked = machine.run([VISUDO, "-c"], DEADLINE_S)
    if (
        checked.code != 0 or checked.stderr.strip()
    ):  # of files that sudo will not read it only says so, with status 0
        yield fault(f"sudo's rules are not valid: {checked.words}", "run visudo -c, and mend what it names")
    yield from _check_rights(machine, settings, layout)


def _rules_in(text: str) -> list[str]:
    """The lines that count, whatever their blanks."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]


def _check_rights(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """What sudo itself says that the account may do, whichever file says so."""
    if machine.uid != 0:
        yield note("what sudo allows the account redbox was not asked", "run redbox check as root")
        return
    listed = machine.run([SUDO, "-n", "-l", "-U", SERVICE_ACCOUNT], DEADLINE_S)
    rights = [(found["runas"], found["rest"]) for found in ALLOWED.finditer(WRAPPED.sub(" ", listed.stdout))]
    wanted = f"%{settings.mapping.users_group}"
    if not rights:
        cure = f"{PUT_SUDOERS.format(layout.sudoers)}; then see sudo -l -U {SERVICE_ACCOUNT}"
        yield fault(f"sudo allows {SERVICE_ACCOUNT} nothing: {listed.words}", cure)
    for runas, rest in rights:
        command = rest.removeprefix("NOPASSWD:").strip()
        if runas != wanted or command != f'{layout.agent} ""':
            yield fault(
                f"sudo allows {SERVICE_ACCOUNT} more than red-box needs: ({runas}) {rest}",
                "find the rule with grep -r redbox /etc/sudoers /etc/sudoers.d, and remove it",
            )


def check_ssh(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """Host keys are known, users' keys are secret, and the CA counts for no stranger."""
    ssh = settings.agents.ssh
    if ssh is None:
        return
    if not (machine.read(ssh.known_hosts) or b"").strip():
        cure = f"ssh-keyscan -p {ssh.port} {ssh.host} > {ssh.known_hosts}, and compare it on the host itself"
        yield fault(f"{ssh.known_hosts} names no host key of {ssh.host}: no connection is made", cure)
    if ssh.key_directory is not None:
        facts = machine.facts(ssh.key_directory)
        if facts is None:
            yield fault(f"there is no directory {ssh.key_directory}", "make it, with a key for each user")
        elif facts.is_open_to(OTHERS_READ):
            cure = f"chmod 0700 {ssh.key_directory}"
            yield fault(f"others may look into {ssh.key_directory}, which holds users' keys", cure)
    yield from _check_sshd(machine, ssh)


def _check_sshd(machine: Machine, ssh: SshSettings) -> Iterator[Finding]:
    """Where sshd is this host's: outside of the group, root above all, the CA must not count."""
    if ssh.ca_key_file is None:
        return
    if machine.facts(Path(SSHD)) is None:
        yield note(
            "sshd was not looked at: it is not on this host",
            "on the login node, sshd -T -C user=root,host=x,addr=127.0.0.1 must say: trustedusercakeys none",
        )
        return
    asked = machine.run([SSHD, "-T", "-C", "user=root,host=localhost,addr=127.0.0.1"], DEADLINE_S)
    if asked.code != 0:
        yield warning(f"sshd's settings were not told: {asked.words}", "run redbox check as root")
    elif "trustedusercakeys none" not in asked.stdout.lower():
        yield fault(
            "sshd trusts a CA of users for root too",
            "put TrustedUserCAKeys inside Match Group, as redbox sshd prints it, and reload sshd",
        )
