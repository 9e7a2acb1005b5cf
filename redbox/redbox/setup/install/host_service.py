"""The service on this host: `redbox init` installs it, `redbox uninstall` removes it.

Account, unit, sudoers rule, log rotation: files of the host that root owns. Every `init` writes them again,
so that a release may change them; local changes belong into drop-ins. A file that the administrator has
written in the place of one of them is kept.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from redbox.agents.install_texts import render_sudoers
from redbox.setup.install.apply import InstallError, write_file
from redbox.setup.install.layout import SERVICE_ACCOUNT, Layout
from redbox.setup.install.plan import NewFile

USERS_GROUP = "redbox-users"
PROGRAM = Path("/usr/local/bin/redbox")
SYSTEMD = Path("/run/systemd/system")
UNIT = Path("etc/systemd/system/redbox.service")
NEXT = "next: usermod -aG {group} USER for each user, then run redbox check"
HEADING = "# Red Box"
MADE_BY_INIT = "Made by `redbox init`"
COMMAND_TIMEOUT_S = 60
PACKAGED = "packaged"
"""A file of the Debian package, in its environment."""
PACKAGE = Path("/usr/lib/redbox")
"""The environment of the Debian package."""


def is_packaged(environment: Path = Path(sys.prefix)) -> bool:
    """Whether this red-box is a package of the distribution, which then owns the files of the host."""
    return (environment / PACKAGED).exists()


def refuse_beside_package(package: Path = PACKAGE) -> None:
    """Raise InstallError where this red-box is not the host's package, which owns agent and service."""
    if is_packaged(package) and not is_packaged():
        raise InstallError(
            f"red-box is a package of this host, in {package}: use /usr/bin/redbox, "
            "or remove the package first (apt-get remove red-box keeps settings and journal)"
        )


def host_files(program: Path, root: Path = Path("/"), *, group: str = USERS_GROUP) -> tuple[NewFile, ...]:
    """Return all files; the unit starts `program`, and sudo starts agents for members of the group."""
    return (
        _host_file(root / "etc/sysusers.d/redbox.conf", _packaged("sysusers.conf")),
        _host_file(root / "etc/tmpfiles.d/redbox.conf", _packaged("tmpfiles.conf")),
        _host_file(root / "etc/logrotate.d/redbox", _packaged("logrotate.conf")),
        _host_file(root / UNIT, _packaged("redbox.service").replace("{program}", str(program))),
        _host_file(root / "etc/sudoers.d/redbox", render_sudoers(group=group), 0o440),
    )


def _host_file(path: Path, content: str, mode: int = 0o644) -> NewFile:
    return NewFile(path, content.encode(), mode, "root")


def install_on_host(group: str) -> list[str]:
    """Install account, files, and the program in PATH, as root; return a line for each step."""
    if is_packaged():
        return _packaged_notes(group)
    program = _program()
    notes = []
    for file in host_files(program, group=group):
        if file.path.exists() and not is_written_by_init(file.path.read_text(errors="replace")):
            notes.append(f"kept {file.path}: redbox init did not write it")
            continue
        write_host_file(file)
        notes.append(f"wrote {file.path}")
        if file.path.parent.name == "sysusers.d":
            _make_accounts(file.path)
    notes += _link(program)
    notes.append(NEXT.format(group=group))
    if SYSTEMD.exists():
        _run("systemctl", "daemon-reload")
        notes.append("then: systemctl enable --now redbox    # after an upgrade: systemctl restart redbox")
    return notes


def _link(program: Path) -> Iterator[str]:
    """Put the program into the PATH of all users, unless something has its name there."""
    if PROGRAM.exists():
        if PROGRAM.resolve() != program.resolve():
            yield f"kept {PROGRAM}: it is not {program}, which the service runs"
        return
    try:
        PROGRAM.unlink(missing_ok=True)
        PROGRAM.symlink_to(program)
    except OSError as error:
        raise InstallError(f"{PROGRAM} cannot be written: {error.strerror}") from error
    yield f"linked {PROGRAM} to {program}"


def _packaged_notes(group: str) -> list[str]:
    return [
        "kept account, unit, sudoers rule and log rotation: they belong to the package red-box",
        NEXT.format(group=group),
        "then: systemctl enable --now redbox",
    ]


def remove_from_host(layout: Layout, *, purge: bool) -> Iterator[str]:
    """Remove what `init` wrote, with a line for each step as soon as it is done.

    `purge` also removes settings, journal, audit log, account and group.
    """
    if is_packaged():
        command = "purge" if purge else "remove"
        raise InstallError(f"red-box is a package of this host: apt-get {command} red-box removes it")
    refuse_beside_package()
    if _is_running(layout.runtime / "redbox.sock"):
        raise InstallError("red-box is running: stop it first (systemctl disable --now redbox)")
    for file in host_files(_program()):
        if file.path.exists() and is_written_by_init(file.path.read_text(errors="replace")):
            file.path.unlink()
            yield f"removed {file.path}"
    if PROGRAM.is_symlink() and PROGRAM.readlink() == _program():
        PROGRAM.unlink()
        yield f"removed {PROGRAM}"
    kept = (layout.configuration, layout.state, layout.log)
    for folder in (layout.agent.parent, layout.runtime, *(kept if purge else ())):
        if folder.exists():
            yield _remove(folder)
    if purge:
        yield _delete("userdel", "passwd", f"the account {SERVICE_ACCOUNT}", SERVICE_ACCOUNT)
        yield _delete("groupdel", "group", f"the group {USERS_GROUP}", USERS_GROUP)
    else:
        yield from (f"kept {folder}" for folder in kept if folder.exists())
        yield "kept the account and the group; --purge removes all of these too"
        yield "jobs in Slurm continue to run"
    if SYSTEMD.exists():
        _run("systemctl", "daemon-reload")


def _is_running(server_socket: Path) -> bool:
    """By its socket, which the settings may have elsewhere or not at all, or else as the service."""
    if server_socket.is_socket() and accepts_connections(server_socket):
        return True
    return SYSTEMD.exists() and _run("systemctl", "is-active", "--quiet", UNIT.name, may_fail=True)


def _delete(command: str, database: str, what: str, name: str) -> str:
    """Delete it unless something holds it: a process, a user whose primary group it is, another directory."""
    _run(command, name, may_fail=True)
    is_left = _run("getent", database, name, may_fail=True)
    return f"kept {what}: {command} {name} does not remove it" if is_left else f"removed {what}"


def _remove(folder: Path) -> str:
    """Remove a directory; only its content if a file system is mounted there, or a link leads to it."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if folder.is_mount():
        return f"emptied {folder}: a file system is mounted there"
    if folder.is_symlink():
        target = folder.readlink()
        folder.unlink()
        return f"removed {folder}, and emptied {target}, where it led to"
    folder.rmdir()
    return f"removed {folder}"


def is_written_by_init(content: str) -> bool:
    """Whether `init` of any release wrote it."""
    return content.startswith(HEADING) or MADE_BY_INIT in content


def _packaged(name: str) -> str:
    return (files("redbox.setup") / "host_files" / name).read_text()


def _program() -> Path:
    """The program of this installation: beside the running interpreter, else the one in PATH."""
    beside = Path(sys.executable).parent / "redbox"
    return beside if beside.exists() else Path(shutil.which("redbox") or PROGRAM)


def write_host_file(file: NewFile) -> None:
    """Replace a file; visudo checks a sudoers file first, since a broken one disables sudo."""
    is_sudoers = file.path.parent.name == "sudoers.d"
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, check=_check_sudoers if is_sudoers else None)
    except OSError as error:
        raise InstallError(f"{file.path} cannot be written: {error.strerror}") from error


def _check_sudoers(path: Path) -> None:
    _run("visudo", "--check", "--quiet", "--file", str(path))


def _make_accounts(sysusers: Path) -> None:
    """Use systemd-sysusers, or else the commands of every distribution."""
    if shutil.which("systemd-sysusers"):
        _run("systemd-sysusers", str(sysusers))
        return
    account = ("--system", "--home-dir", "/var/lib/redbox", "--shell", "/usr/sbin/nologin", SERVICE_ACCOUNT)
    for database, name, command in (
        ("group", USERS_GROUP, ("groupadd", "--system", USERS_GROUP)),
        ("passwd", SERVICE_ACCOUNT, ("useradd", *account)),
    ):
        if not _run("getent", database, name, may_fail=True):
            _run(*command)


def accepts_connections(unix_socket: Path, timeout_s: float = COMMAND_TIMEOUT_S) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s)
        try:
            client.connect(str(unix_socket))
        except OSError:
            return False
    return True


def _run(*command: str, may_fail: bool = False) -> bool:
    try:
        result = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if may_fail:
            return False
        raise InstallError(f"`{' '.join(command)}` cannot be run: {error}") from error
    if result.returncode and not may_fail:
        output = (result.stderr or result.stdout).strip()[-500:]
        raise InstallError(f"`{' '.join(command)}` failed: {output}")
    return result.returncode == 0
