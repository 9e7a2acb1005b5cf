"""Checks of accounts, files and ports: who could change who is who, and who could read what signs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from redbox.jobs.store.journal_lock import file_system_type, is_network
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, fault, note, warning
from redbox.setup.checks.machine import BUSY, Machine
from redbox.setup.install.layout import SERVICE_ACCOUNT, Layout

OTHERS_WRITE = 0o022
OTHERS_READ = 0o077
POWERFUL_GROUPS = ("root", "wheel", "sudo", "admin", "adm", "disk", "shadow", "docker", "munge", "slurm")
LITTLE_ROOM = 512 * 1024 * 1024
SECRET_BYTES = 32
MAKE = "run redbox init as root, or say in redbox.yaml where it is"
RESTORE = (
    "restore it from a backup or a standby: jobs carry marks that are signed with it. Only where there was "
    "never one, run redbox init as root"
)
MOUNTS = Path("/proc/self/mountinfo")


def check_service_account(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """The account that the server runs as can do nothing by itself."""
    if settings.agents.transport == "self":
        return
    account = machine.account(SERVICE_ACCOUNT)
    if account is None:
        cure = f"useradd --system -d /var/lib/redbox -s /usr/sbin/nologin {SERVICE_ACCOUNT}"
        yield fault(f"there is no account {SERVICE_ACCOUNT} for the server to run as", cure)
        return
    if account.uid == 0:
        yield fault(
            f"the account {SERVICE_ACCOUNT} is root under another name", "give it a number of its own"
        )
    for group in (settings.mapping.users_group, *POWERFUL_GROUPS):
        number = machine.group(group)
        if number is not None and number in account.groups:
            yield fault(
                f"the account {SERVICE_ACCOUNT} is in the group {group}",
                f"gpasswd -d {SERVICE_ACCOUNT} {group}",
            )


def check_users_group(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """Agents are started for members of this group only."""
    group = settings.mapping.users_group
    if settings.agents.transport != "self" and machine.group(group) is None:
        cure = f"groupadd {group}, and usermod -aG {group} USER for each user whom red-box may act for"
        yield fault(f"there is no group {group}: no agent can be started for anybody", cure)


def check_settings_files(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """Whoever writes these files says who is who."""
    keys = [cluster.jwks_file for cluster in settings.callers.clusters if cluster.jwks_file is not None]
    files = [layout.settings, *([settings.mapping.file] if settings.mapping.file else []), *keys]
    owners = {0} if settings.agents.transport != "self" else {0, machine.uid}
    for path in files:
        for place in writable_by_others(machine, path, owners):
            yield fault(
                f"{place} may be written by others than root, who could then say whose jobs run as whom",
                f"chown root {place} && chmod go-w {place}",
            )


def writable_by_others(machine: Machine, path: Path, owners: set[int]) -> Iterator[Path]:
    """The file, and the directories above it, that somebody else could change."""
    resolved = machine.resolve(path)
    for place in (resolved, *resolved.parents):
        facts = machine.facts(place)
        if facts is None:
            continue
        is_sticky = facts.is_directory and facts.is_open_to(0o1000) and place != resolved
        if facts.uid not in owners or (facts.is_open_to(OTHERS_WRITE) and not is_sticky):
            yield place


def check_secrets(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """What signs and opens things is read by its owner alone."""
    service = machine.account(SERVICE_ACCOUNT)
    owner = machine.uid if settings.agents.transport == "self" else service.uid if service else None
    server_key, mark_secret = settings.tls.key_file, settings.jobs.mark_secret
    needed = {server_key: owner, mark_secret: owner}
    optional = {settings.callers.tokens_file: owner, layout.authority_key: None}
    if settings.agents.ssh is not None and settings.agents.ssh.ca_key_file is not None:
        needed[settings.agents.ssh.ca_key_file] = owner
    for cluster in settings.callers.clusters:
        for token in (cluster.jwks_token_file, cluster.token_review and cluster.token_review.token_file):
            if token:
                needed[token] = owner
    for path, expected in {**optional, **needed}.items():
        cure = RESTORE if path == mark_secret else MAKE
        yield from _check_secret(machine, path, expected, is_needed=path in needed, cure=cure)


def _check_secret(
    machine: Machine, path: Path, owner: int | None, *, is_needed: bool, cure: str
) -> Iterator[Finding]:
    facts = machine.facts(path)
    if facts is None:
        if is_needed:
            yield fault(f"{path} is missing", cure)
        return
    if facts.is_open_to(OTHERS_READ):
        cure = f"chmod 0600 {path}; and if others had the time to read it, make it anew"
        yield fault(f"{path} has mode {facts.mode:04o}: it is a secret, and others may read it", cure)
    if owner is not None and facts.uid != owner:
        yield fault(
            f"{path} belongs to uid {facts.uid}, not to the server's account",
            f"chown {SERVICE_ACCOUNT} {path}",
        )


def check_mark_secret(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """It has the form that `redbox init` gives it."""
    content = machine.read(settings.jobs.mark_secret)
    if content is None:
        return  # missing is said by check_secrets; unreadable, by whoever runs this without the right to
    try:
        is_good = len(bytes.fromhex(content.decode("ascii").strip())) == SECRET_BYTES
    except ValueError:
        is_good = False
    if not is_good:
        yield fault(
            f"{settings.jobs.mark_secret} is not a secret made by redbox init (64 hexadecimal digits)",
            RESTORE,
        )


def check_journal(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """The journal's directory is there, is the server's, and is on a disk of this host."""
    directory = settings.jobs.journal
    facts = machine.facts(directory)
    if facts is None or not facts.is_directory:
        cure = f"install -d -m 0700 -o {SERVICE_ACCOUNT} {directory}"
        yield fault(f"there is no directory {directory} for the journal", cure)
        return
    if facts.is_open_to(OTHERS_READ):
        yield fault(f"{directory} has mode {facts.mode:04o}: it holds the journal", f"chmod 0700 {directory}")
    mounts = machine.read(MOUNTS)
    kind = file_system_type(str(machine.resolve(directory)), mounts.decode()) if mounts else "unknown"
    if is_network(kind):
        yield fault(
            f"{directory} is on a network file system ({kind}), which does not keep a journal's promises",
            "set jobs.journal to a directory on a local disk",
        )
    room = machine.free_bytes(directory)
    if room < LITTLE_ROOM:
        yield warning(
            f"{directory} has {room // 1024 // 1024} MiB left: new submits are refused once it is full",
            "make room, or set jobs.journal to another local disk",
        )


def check_listening(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """The port is free, or red-box's own."""
    listen = settings.listen
    if listen.port == 0:
        return
    why = machine.why_not_listen(listen.address, listen.port)
    if why is None:
        return
    if why == BUSY and listen.unix_socket is not None and machine.answers_at(listen.unix_socket):
        yield note(f"port {listen.port} is in use, by the red-box that answers at {listen.unix_socket}")
        return
    where = f"{listen.address}, port {listen.port}"
    yield fault(f"red-box cannot listen at {where}: {why}", f"see ss -ltnp 'sport = :{listen.port}'")
