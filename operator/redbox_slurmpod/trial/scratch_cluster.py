"""`redbox-slurmpod trial`: one slurmctld and one slurmd that run a new configuration, before a cluster does.

slurmctld takes what only slurmd refuses, and then no worker starts any more. Nothing of the cluster is here:
the keys are made for this trial, and no job runs, so no program that the configuration names does either.
The result is the exit status, with a sentence as the container's termination message.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from redbox_slurmpod.projected_files import read_files
from redbox_slurmpod.trial.configuration import HOST, SLURM_CONF, trial_files

ACCEPTED, REFUSED, UNDECIDED = 0, 10, 11
"""Exit statuses. Another one is that of a program that failed, and so undecided too."""
WITHIN_S = 30
LONGEST_MESSAGE = 2048
_TAIL = 64 * 1024
_MOST_WORDS = 3
_WORDS = re.compile(r"\b(?:error|fatal): .*\S")
_SCONTROL = "scontrol"
_AGAIN_S = 0.1
_ENDS_S = 3
_KEY_BYTES = 32
_OF_THE_POD = tuple(
    os.strerror(code)
    for code in (errno.EAGAIN, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)
)
"""What a daemon ends of that says nothing of its configuration."""
_READ_BACK = (
    *("AuthAltTypes", "AuthType", "ClusterName", "CredType", "GresTypes", "JobAcctGatherType"),
    *("LaunchParameters", "Licenses", "MaxNodeCount", "ProctrackType", "SelectType"),
    *("SlurmctldParameters", "SlurmdParameters", "SuspendExcStates", "TaskPlugin"),
)
"""Keys that the operator relies on; among the licenses is the configuration's marker."""


class ConfigurationRefused(Exception):
    """A daemon ended of the configuration, or runs another one."""


class TrialUndecided(Exception):
    """Nothing is known of the configuration."""


@dataclass(frozen=True)
class Folders:
    """Of the pod."""

    new: Path = Path("/etc/redbox/configuration")
    """The new configuration, as the operator wrote it."""
    slurm: Path = Path("/etc/slurm")
    run: Path = Path("/run")
    spool: Path = Path("/var/spool")
    message: Path = Path("/dev/termination-log")


def try_configuration(folders: Folders, within_s: float = WITHIN_S) -> int:
    """The exit status."""
    try:
        _run(folders, time.monotonic() + within_s)
        status, message = ACCEPTED, "accepted"
    except ConfigurationRefused as error:
        status, message = REFUSED, str(error)
    except (TrialUndecided, OSError, subprocess.SubprocessError) as error:
        status, message = UNDECIDED, str(error)
    folders.message.write_bytes(_printable(message).encode()[:LONGEST_MESSAGE])
    return status


def _run(folders: Folders, deadline: float) -> None:
    files = trial_files({name: content.decode() for name, content in read_files(folders.new).items()})
    if SLURM_CONF not in files:
        raise TrialUndecided(f"there is no {SLURM_CONF} in {folders.new}")
    _prepare(files, folders)
    with _daemon(folders.run, "slurmctld", "-D") as slurmctld:
        _until(_answers, "slurmctld did not answer", [slurmctld], deadline)
        with _daemon(folders.run, "slurmd", "-D", "-Z", "--conf-server", f"{HOST}:6817") as slurmd:
            _until(_is_idle, "slurmd did not register", [slurmctld, slurmd], deadline)
        _check_read_back(files[SLURM_CONF], deadline)


def _prepare(files: Mapping[str, str], folders: Folders) -> None:
    """The daemons' own folders, the files, and keys that nobody else has."""
    for folder in (folders.run / "slurm", folders.run / "slurmctld"):
        folder.mkdir(mode=0o755)
    for folder in (folders.spool / "slurmctld", folders.spool / "slurmd"):
        folder.mkdir(mode=0o755)
    for name, text in files.items():
        file = folders.slurm / name
        file.write_text(text)
        file.chmod(0o555)  # as in slurmctld's pod: some are programs
    for name in ("slurm.key", "jwt.key"):
        with os.fdopen(os.open(folders.slurm / name, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as key:
            key.write(secrets.token_bytes(_KEY_BYTES))


# ---------------------------------------------------------------------------------------------- daemons
@dataclass(frozen=True)
class _Daemon:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise if it has ended: nothing ends it but itself and the kernel."""
        status = self.process.poll()
        if status is None:
            return
        words = self.words()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        message = f"{self.name}: {words or f'it ended with {how}'}"
        if status == -signal.SIGKILL or not words or any(text in words for text in _OF_THE_POD):
            raise TrialUndecided(message)
        raise ConfigurationRefused(message)

    def words(self) -> str:
        """Its last errors, up to the last fatal one."""
        with self.log.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _TAIL, 0))
            lines = log.read().decode(errors="replace").splitlines()
        found = [match[0] for line in lines if (match := _WORDS.search(line))]
        fatal = [number for number, words in enumerate(found, 1) if words.startswith("fatal")]
        found = found[: fatal[-1]] if fatal else found
        return "; ".join(found[-_MOST_WORDS:])


@contextlib.contextmanager
def _daemon(run: Path, *command: str) -> Iterator[_Daemon]:
    log = run / f"{command[0]}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield _Daemon(command[0], process, log)
    finally:
        process.kill()
        process.wait(_ENDS_S)


def _until(
    holds: Callable[[float], bool], otherwise: str, daemons: Sequence[_Daemon], deadline: float
) -> None:
    while not holds(deadline):
        for daemon in daemons:
            daemon.check()
        if time.monotonic() >= deadline:
            words = "; ".join(f"{daemon.name}: {words}" for daemon in daemons if (words := daemon.words()))
            raise TrialUndecided(f"{otherwise} within {WITHIN_S} s" + (f": {words}" if words else ""))
        time.sleep(_AGAIN_S)
    for daemon in daemons:
        daemon.check()


# ---------------------------------------------------------------------------------------- what Slurm says
def _scontrol(deadline: float, *arguments: str) -> str:
    """Empty while slurmctld does not answer."""
    try:
        asked = subprocess.run(
            (_SCONTROL, *arguments),
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=max(deadline - time.monotonic(), 0.1),
        )
    except subprocess.TimeoutExpired:
        return ""
    return asked.stdout if asked.returncode == 0 else ""


def _answers(deadline: float) -> bool:
    return " is UP" in _scontrol(deadline, "ping")


def _is_idle(deadline: float) -> bool:
    return " State=IDLE" in _scontrol(deadline, "--oneliner", "show", "node", HOST)


def _check_read_back(slurm_conf: str, deadline: float) -> None:
    wanted = dict(line.split("=", 1) for line in slurm_conf.splitlines() if "=" in line)
    rows = (line.partition("=") for line in _scontrol(deadline, "show", "config").splitlines())
    shown = {key.strip(): value.strip() for key, _, value in rows}
    if not shown:
        raise TrialUndecided("slurmctld did not show its configuration")
    for key in _READ_BACK:
        value = wanted.get(key, "")
        as_shown = "(null)" if value.endswith("/none") else value
        if value and shown.get(key) not in {value, as_shown}:
            raise ConfigurationRefused(
                f"slurmctld runs {key}={shown.get(key, '')}, and the operator relies on {value}"
            )


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)
