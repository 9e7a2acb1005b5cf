"""What each role of the image prepares before its daemon starts, and the daemon's command; `cli` runs it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from redbox_slurmpod.pod import ThisPod
from redbox_slurmpod.projected_files import copy_private
from redbox_slurmpod.supervision.processes import has_steps
from redbox_slurmpod.supervision.supervisor import SupervisedDaemon

CONFIGURATION = Path("/etc/slurm")
MUNGE_KEY = Path("/etc/redbox/munge")
SSHD_CONFIGURATION, HOST_KEY = Path("/etc/redbox/ssh"), Path("/etc/redbox/host-key")
RUN = Path("/run")
STATE = Path("/var/spool/slurmctld")
_BEGUN, _FIRST, _SAVED_LAST = "clustername", "redbox-first-start", "fed_mgr_state"
"""In slurmctld's state: there from its first start, ours until all was saved once, and what is saved last."""
SHARED = (Path("/tmp"), Path("/dev/shm"))  # noqa: S108 (where jobs write)
_OURS = (sys.executable, "-I", "-m", "redbox_slurmpod")


def slurmctld(options: Sequence[str], *, run: Path = RUN, state: Path = STATE) -> SupervisedDaemon:
    """A slurmctld that ends ends its container, which Kubernetes starts again and counts."""
    _make_folder(run / "slurmctld")
    begun = ("-i",) if _is_beginning(state) else ()
    command = ("/usr/sbin/slurmctld", "--systemd", *begun, *options)
    return SupervisedDaemon(command, restarts=False, keys=CONFIGURATION)


def _is_beginning(state: Path) -> bool:
    """Whether slurmctld has not saved all of its state once, which takes its first five minutes.

    Killed in these, it would never start again (`No Assoc usage file to recover`) without -i, which takes
    what is missing for empty. Later nothing may be missing, and in a state that was restored neither.
    """
    first = state / _FIRST
    if (state / _SAVED_LAST).exists():
        first.unlink(missing_ok=True)
        return False
    if not (state / _BEGUN).exists():
        first.touch()
    return first.exists()


def slurmd(
    pod: ThisPod,
    options: Sequence[str],
    *,
    started: float,
    run: Path = RUN,
    shared: Sequence[Path] = SHARED,
) -> SupervisedDaemon:
    """A slurmd of a dynamic node (-Z).

    -b reports SLURMD_BOOT_TIME as the boot, which is the container's start: a slurmd that dies alone comes
    back without harm to its jobs, and a new container is a reboot, after which Slurm requeues what was lost.
    """
    keep_from_jobs(run, shared)
    _make_folder(run / "slurm")
    # Of the container before: readiness would take it for this slurmd's.
    (run / "slurm" / "sack.socket").unlink(missing_ok=True)
    if (conf := run / "slurm" / "conf").is_symlink():
        conf.unlink()
    identity = (f"--instance-id={pod.uid}",) if pod.uid else ()
    return SupervisedDaemon(
        ("/usr/sbin/slurmd", "--systemd", "-Z", "-b", *identity, *options),
        restarts=True,
        environment={"SLURMD_BOOT_TIME": str(int(started))},
        when_ready=(*_OURS, "instance-id") if pod.uid else (),
        keys=CONFIGURATION,
        holds=has_steps,
    )


def sackd(options: Sequence[str]) -> SupervisedDaemon:
    """The authentication socket of a login pod, from the releases whose packages have it."""
    return SupervisedDaemon(("/usr/sbin/sackd", "--systemd", *options), restarts=True, keys=CONFIGURATION)


def slurmdbd(
    options: Sequence[str], *, configuration: Path = CONFIGURATION, run: Path = RUN
) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Command and environment.

    slurmdbd refuses a slurmdbd.conf that is not its own account's with mode 0600, as a projected one never
    is.
    """
    own = run / "slurmdbd" / "conf"
    _make_folder(run / "slurmdbd")
    copy_private(configuration, own)
    return ("/usr/sbin/slurmdbd", "-D", *options), {**os.environ, "SLURM_CONF": str(own / "slurm.conf")}


def munged(socket: Path, *, key: Path = MUNGE_KEY, run: Path = RUN) -> tuple[str, ...]:
    """The command of munged, with a copy of the key that is its own.

    It refuses a folder that others may write, as that of a volume is: --force goes on with a warning.
    """
    own = run / "munge"
    copy_private(key, own)
    files = {"key-file": own / "munge.key", "pid-file": own / "munged.pid", "seed-file": own / "munged.seed"}
    options = [f"--{name}={path}" for name, path in files.items()]
    return ("/usr/sbin/munged", "--foreground", "--force", f"--socket={socket}", *options)


def login(
    *,
    run: Path = RUN,
    host_key: Path = HOST_KEY,
    configuration: Path = SSHD_CONFIGURATION,
    shared: Sequence[Path] = SHARED,
) -> tuple[str, ...]:
    """The command of sshd.

    sshd refuses a host key that others can read, as a projected one is. Users of this pod must not replace
    the socket that signs for them: its folder, a volume for all to write, is for the group of the other
    container.
    """
    keep_from_jobs(run, shared)
    _make_folder(run / "sshd")
    (run / "slurm").chmod(0o775)
    copy_private(host_key, run / "redbox" / "ssh")
    return ("/usr/sbin/sshd", "-D", "-e", "-f", str(configuration / "sshd_config"))


def keep_from_jobs(run: Path, shared: Sequence[Path]) -> None:
    """Volumes of a pod are for everybody to write, and stay when its container is started again.

    Who makes /run/nscd/socket answers each look-up of a user or group by root. Without the sticky bit each
    user may replace the files of others.
    """
    run.chmod(0o755)
    shutil.rmtree(run / "nscd", ignore_errors=True)
    for folder in shared:
        folder.chmod(0o1777)


def _make_folder(folder: Path) -> None:
    """The daemon ends if it cannot make its own folder for its socket."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
