"""Checks of accounts, files and ports: only root may change settings, only the server may read secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from redbox.core.secret_files import GROUP_READS
from redbox.jobs.record.marks import SECRET_BYTES
from redbox.jobs.store.journal_lock import file_system_type, is_network
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, fault, note, warning
from redbox.setup.checks.machine import PORT_IN_USE, Machine, SlurmHost
from redbox.setup.install.layout import SERVICE_ACCOUNT, Layout

OTHERS_WRITE = 0o022
OTHERS_READ = 0o077
POWERFUL_GROUPS = ("root", "wheel", "sudo", "admin", "adm", "disk", "shadow", "docker", "munge", "slurm")
LOW_DISK_BYTES = 512 * 1024 * 1024
HOW_TO_CREATE = "run redbox init as root, or set its path in redbox.yaml"
HOW_TO_RESTORE = (
    "restore it from a backup or a standby: it signs the marks of jobs that run. On a new installation, "
    "run redbox init as root"
)
MOUNTS = Path("/proc/self/mountinfo")


def check_service_account(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """The server's account has no rights of its own."""
    if settings.agents.transport == "self":
        return
    account = machine.account(SERVICE_ACCOUNT)
    if account is None:
        cure = f"useradd --system -d /var/lib/redbox -s /usr/sbin/nologin {SERVICE_ACCOUNT}"
        yield fault(f"there is no account {SERVICE_ACCOUNT}: the server runs as that account", cure)
        return
    if account.uid == 0:
        yield fault(
            f"the account {SERVICE_ACCOUNT} has uid 0: it is root under another name",
            "give it a uid of its own",
        )
    for group in (settings.mapping.users_group, *POWERFUL_GROUPS):
        gid = machine.group(group)
        if gid is not None and gid in account.groups:
            yield fault(
                f"the account {SERVICE_ACCOUNT} is in the group {group}",
                f"gpasswd -d {SERVICE_ACCOUNT} {group}",
            )


def check_users_group(host: SlurmHost, settings: RedboxSettings) -> Iterator[Finding]:
    """Agents are started for members of this group only."""
    group = settings.mapping.users_group
    if settings.agents.transport != "self" and host.group(group) is None:
        cure = (
            f"groupadd {group}, then usermod -aG {group} USER for each user that may run jobs through red-box"
        )
        yield fault(f"there is no group {group} on {host.where}: red-box can start no agent", cure)


def check_settings_files(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """Only root can write the files that decide which caller is which user."""
    keys = [cluster.jwks_file for cluster in settings.callers.clusters if cluster.jwks_file is not None]
    files = [layout.settings, *([settings.mapping.file] if settings.mapping.file else []), *keys]
    owners = {0} if settings.agents.transport != "self" else {0, machine.uid}
    for path in files:
        yield from check_writers(machine, path, owners, ": they could run jobs as any user")


def check_writers(
    machine: Machine, path: Path, owners: Collection[int] = (0,), risk: str = ""
) -> Iterator[Finding]:
    """Only the owners can write a file and the directories above it."""
    resolved = machine.resolve(path)
    for place in (resolved, *resolved.parents):
        permissions = machine.permissions(place)
        if permissions is None or permissions.is_read_only:
            continue
        is_sticky = permissions.is_directory and permissions.is_open_to(0o1000) and place != resolved
        if permissions.uid not in owners or (permissions.is_open_to(OTHERS_WRITE) and not is_sticky):
            cure = f"chown root {place} && chmod go-w {place}"
            yield fault(f"users other than root can write {place}{risk}", cure)


def check_secrets(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """Only their owner can read the keys, tokens and secrets."""
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
        cure = HOW_TO_RESTORE if path == mark_secret else HOW_TO_CREATE
        yield from _check_secret(machine, path, expected, is_needed=path in needed, cure=cure)


def _check_secret(
    machine: Machine, path: Path, owner: int | None, *, is_needed: bool, cure: str
) -> Iterator[Finding]:
    permissions = machine.permissions(path)
    if permissions is None:
        if is_needed:
            yield fault(f"{path} is missing", cure)
        return
    if not permissions.is_secret:
        cure = f"chmod 0600 {path}; replace it if other users may have read it"
        yield fault(
            f"{path} has mode {permissions.mode:04o}: it is a secret, and other users can read it", cure
        )
    is_read_by_group = permissions.of_own_group and permissions.is_open_to(GROUP_READS)
    if owner is not None and permissions.uid != owner and not (permissions.uid == 0 and is_read_by_group):
        yield fault(
            f"{path} belongs to uid {permissions.uid}, not to the server's account",
            f"chown {SERVICE_ACCOUNT} {path}",
        )


def check_mark_secret(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """It has the format that `redbox init` writes."""
    content = machine.read(settings.jobs.mark_secret)
    if content is None:
        return  # check_secrets reports a missing file
    try:
        is_good = len(bytes.fromhex(content.decode("ascii").strip())) == SECRET_BYTES
    except ValueError:
        is_good = False
    if not is_good:
        yield fault(
            f"{settings.jobs.mark_secret} is not a mark secret: it must hold 64 hexadecimal digits",
            HOW_TO_RESTORE,
        )


def check_journal(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """The journal's directory is there, is private, and is on a local disk with room."""
    directory = settings.jobs.journal
    permissions = machine.permissions(directory)
    if permissions is None or not permissions.is_directory:
        cure = f"install -d -m 0700 -o {SERVICE_ACCOUNT} {directory}"
        yield fault(f"there is no directory {directory} for the journal", cure)
        return
    if permissions.is_open_to(OTHERS_READ):
        what = f"{directory} has mode {permissions.mode:04o}: other users can read the journal in it"
        yield fault(what, f"chmod 0700 {directory}")
    mounts = machine.read(MOUNTS)
    kind = file_system_type(str(machine.resolve(directory)), mounts) if mounts else "unknown"
    if is_network(kind):
        yield fault(
            f"{directory} is on a network file system ({kind}): the journal could be damaged there",
            "set jobs.journal to a directory on a local disk",
        )
    free = machine.free_bytes(directory)
    if free < LOW_DISK_BYTES:
        yield warning(
            f"{directory} has {free // 1024 // 1024} MiB left: red-box rejects new jobs when it is full",
            "free space there, or move the journal (jobs.journal) to another local disk",
        )


def check_listening(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """The port is free, or in use by red-box."""
    listen, certificate = settings.listen, settings.tls.certificate_file
    if listen.port == 0:
        return
    error = machine.listen_error(listen.address, listen.port)
    if error is None:
        return
    shows = f"ss -ltnp 'sport = :{listen.port}' shows"
    if error == PORT_IN_USE:
        is_ours = machine.serves(listen.address, listen.port, machine.read(certificate) or b"")
        if listen.unix_socket is None and is_ours:
            return
        if listen.unix_socket is not None and machine.accepts_connections(listen.unix_socket):
            where = f"port {listen.port} is in use"
            if is_ours:
                yield note(f"{where} by the red-box that runs here ({listen.unix_socket} answers)")
            else:
                yield warning(
                    f"{where}, and not with {certificate}: if by another process, red-box cannot start again",
                    f"look at the process that {shows}, above all if listen was changed since red-box was "
                    "started; it takes a renewed certificate within ten seconds",
                )
            return
    cure = f"stop the process that {shows}, or change the section listen"
    yield fault(f"red-box cannot listen on {listen.address}, port {listen.port}: {error}", cure)
