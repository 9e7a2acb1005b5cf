"""What a host needs to run red-box as a service: `redbox init` makes it, `redbox uninstall` removes it.

Account, unit, sudoers rule, log rotation: files of the host, root's own. Each is made anew on every `init`,
so that a release may change them: local changes belong into drop-ins. What an administrator has put in the
place of one of them is left alone.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from redbox.agents.install_texts import render_sudoers
from redbox.setup.install.apply import InstallError
from redbox.setup.install.layout import SERVICE_ACCOUNT, Layout

USERS_GROUP = "redbox-users"
PROGRAM = Path("/usr/local/bin/redbox")
UNIT = Path("etc/systemd/system/redbox.service")
MADE_BY_US = "# Red Box"
MADE_BY_INIT = "Made by `redbox init`"
COMMAND_SECONDS = 60


@dataclass(frozen=True, slots=True)
class HostFile:
    """One of them: where it is, and what is in it."""

    path: Path
    content: str
    mode: int = 0o644


def host_files(program: Path, root: Path = Path("/")) -> tuple[HostFile, ...]:
    """All of them; `program` is what the unit starts."""
    return (
        HostFile(root / "etc/sysusers.d/redbox.conf", _packaged("sysusers.conf")),
        HostFile(root / "etc/tmpfiles.d/redbox.conf", _packaged("tmpfiles.conf")),
        HostFile(root / "etc/logrotate.d/redbox", _packaged("logrotate.conf")),
        HostFile(root / UNIT, _packaged("redbox.service").replace("{program}", str(program))),
        HostFile(root / "etc/sudoers.d/redbox", render_sudoers(), 0o440),
    )


def install_on_host() -> list[str]:
    """Account, files, and the program in everybody's PATH; what was done, a line each. As root."""
    program = _program()
    notes = []
    for file in host_files(program):
        if file.path.exists() and not is_ours(file.path.read_text()):
            notes.append(f"kept {file.path}: it is yours")
            continue
        _place(file)
        notes.append(f"wrote {file.path}")
        if file.path.parent.name == "sysusers.d":
            _make_accounts(file.path)
    if not PROGRAM.exists():
        PROGRAM.unlink(missing_ok=True)
        PROGRAM.symlink_to(program)
        notes.append(f"linked {PROGRAM} to {program}")
    notes.append(f"then: put users into the group {USERS_GROUP}, and run redbox check")
    if Path("/run/systemd/system").exists():
        _run("systemctl", "daemon-reload")
        notes.append("and: systemctl enable --now redbox    # after an upgrade: systemctl restart redbox")
    return notes


def remove_from_host(layout: Layout, *, purge: bool) -> list[str]:
    """Whatever `init` made; with `purge` also settings, journal and audit, which are kept else."""
    if (layout.runtime / "redbox.sock").is_socket() and _answers(layout.runtime / "redbox.sock"):
        raise InstallError("red-box is running: stop it first (systemctl disable --now redbox)")
    notes = []
    for file in host_files(_program()):
        if file.path.exists() and is_ours(file.path.read_text()):
            file.path.unlink()
            notes.append(f"removed {file.path}")
    if PROGRAM.is_symlink() and PROGRAM.readlink() == _program():
        PROGRAM.unlink()
        notes.append(f"removed {PROGRAM}")
    kept = (layout.configuration, layout.state, layout.log)
    going = (layout.agent.parent, layout.runtime, *(kept if purge else ()))
    notes += [_remove(folder) for folder in going if folder.exists()]
    if purge:
        _run("userdel", SERVICE_ACCOUNT, may_fail=True)
        _run("groupdel", USERS_GROUP, may_fail=True)
        notes.append(f"removed the account {SERVICE_ACCOUNT} and the group {USERS_GROUP}")
    else:
        notes += [f"kept {folder}" for folder in kept if folder.exists()]
        notes.append("kept the account and the group; jobs in Slurm run on; --purge removes all of these too")
    if Path("/run/systemd/system").exists():
        _run("systemctl", "daemon-reload")
    return notes


def _remove(folder: Path) -> str:
    """All that is in it, and the folder, unless a file system of its own is mounted there."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if folder.is_mount():
        return f"emptied {folder}, where a file system is mounted"
    folder.rmdir()
    return f"removed {folder}"


def is_ours(content: str) -> bool:
    """Whether `init` made it, of whichever release."""
    return content.startswith(MADE_BY_US) or MADE_BY_INIT in content


def _packaged(name: str) -> str:
    return (files("redbox.setup") / "host_files" / name).read_text()


def _program() -> Path:
    """This very installation's: beside the interpreter that runs it, else the one in PATH."""
    beside = Path(sys.executable).parent / "redbox"
    return beside if beside.exists() else Path(shutil.which("redbox") or PROGRAM)


def _place(file: HostFile) -> None:
    """Whole or not at all; sudo is asked first, for a rule that it cannot read may lock everybody out."""
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.path.parent, prefix=".redbox.", delete=False) as new:
            new.write(file.content)
        unfinished = Path(new.name)
        unfinished.chmod(file.mode)
        if file.path.parent.name == "sudoers.d":
            _check_sudoers(unfinished)
        unfinished.replace(file.path)
    except OSError as error:
        raise InstallError(f"{file.path} could not be written: {error.strerror}") from error


def _check_sudoers(path: Path) -> None:
    try:
        _run("visudo", "--check", "--quiet", "--file", str(path))
    except InstallError:
        path.unlink()
        raise


def _make_accounts(sysusers: Path) -> None:
    """By systemd's own tool where there is one, else by those of every distribution."""
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


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(COMMAND_SECONDS)
        try:
            asking.connect(str(path))
        except OSError:
            return False
    return True


def _run(*command: str, may_fail: bool = False) -> bool:
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        if may_fail:
            return False
        raise InstallError(f"`{' '.join(command)}` could not be run: {error}") from error
    if ended.returncode and not may_fail:
        raise InstallError(f"`{' '.join(command)}` failed: {_words(ended)}")
    return ended.returncode == 0


def _words(ended: subprocess.CompletedProcess[str]) -> str:
    return (ended.stderr or ended.stdout).strip()[-500:]
