"""Whether this machine can carry the bed, before anything of it is started.

Each problem is one sentence with its cure. What Debian or Ubuntu have a package for is installed, and said.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from redbox_bed import port_forwards
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError, NotPossibleError
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Plan, Source
from redbox_bed.core.progress import Progress
from redbox_bed.hosts import roots

# A file that must be there, and the package that brings it.
PACKAGES: Mapping[str, str] = {
    "/usr/bin/mmdebstrap": "mmdebstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
    "/usr/bin/ip": "iproute2",
    "/usr/bin/unshare": "util-linux",
    "/usr/bin/nsenter": "util-linux",
    "/usr/bin/setpriv": "util-linux",
    "/usr/bin/mount": "mount",
}
_INSTALL_SECONDS = 900
_GIGABYTE = 10**9
_STATE_BYTES = 2 * _GIGABYTE
_ROOT_BYTES = 2 * _GIGABYTE
_KUBE_BYTES = 6 * _GIGABYTE
"""Go's caches of modules and of compiled packages are most of it."""

_NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--mount", "--cgroup", "--time", "--fork")
_TRY_NETWORK = "ip link add try0 type bridge && ip link add try1 type veth peer name try2"
_TRY_OVERLAY = 'cd "$0" && mkdir l u w m && mount -t overlay try -o lowerdir=l,upperdir=u,workdir=w m'


def check_root(user_id: int) -> None:
    if user_id != 0:
        raise NotPossibleError(
            "the bed makes namespaces and mounts, for which it needs root: run it with sudo, or as root"
        )


def check_distribution(os_release: str) -> None:
    """By the text of /etc/os-release."""
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    names = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    if "debian" not in names and "ubuntu" not in names:
        this = fields.get("PRETTY_NAME", "an unknown system").strip('"')
        raise NotPossibleError(
            f"the bed runs on Debian and Ubuntu, and this machine is {this}: use one of those"
        )


def check_disk(folder: Path, needed: int, free: int) -> None:
    if free < needed:
        raise NotPossibleError(
            f"the bed needs {needed / _GIGABYTE:.0f} GB in {folder} and {free / _GIGABYTE:.1f} GB are free: "
            "make room, or put the cache elsewhere with REDBOX_CACHE and the state with BED_DIR"
        )


def check_path(folder: Path) -> None:
    """What an overlay's options and lists of paths are parted by cannot be in a path."""
    if bad := sorted(set(str(folder)) & set(",: \t\n\\")):
        raise NotPossibleError(
            f"the path {folder} has {bad[0]!r} in it, with which nothing can be mounted there: "
            "use another checkout, or BED_DIR and REDBOX_CACHE"
        )


def check_machine(bed: Bed, progress: Progress) -> None:
    """All of it; what a bed that already runs has proved is not tried again."""
    check_root(os.geteuid())
    for folder in (bed.places.state, bed.places.cache):
        check_path(folder)
    port_forwards.refuse_taken_ports(bed.places, bed.plan)
    if bed.keeper.process():
        return
    check_distribution(_text("/etc/os-release"))
    install_missing(progress)
    check_disk(_existing(bed.places.cache), needed_space(bed.places, bed.plan), _free(bed.places.cache))
    check_disk(_existing(bed.places.state), _STATE_BYTES, _free(bed.places.state))
    check_kernel(_existing(bed.places.state))
    if bed.plan.options.slurm is Source.EXISTING:
        check_existing_slurm()


def install_missing(progress: Progress, exists: Callable[[str], bool] = os.path.exists) -> None:
    missing = sorted({package for file, package in PACKAGES.items() if not exists(file)})
    if not missing:
        return
    progress(f"installing {', '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run(
            ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_INSTALL_SECONDS,
        )
        if done.returncode != 0:
            raise NotPossibleError(
                f"{', '.join(missing)} could not be installed; do it by hand (apt-get install): "
                f"{done.stderr.strip()[-300:]}"
            )


def check_kernel(folder: Path) -> None:
    """Try what hosts are made of: namespaces, a bridge with cables, an overlay over a folder of the state."""
    _try(
        ["unshare", *_NAMESPACES, "true"], "does not let us make namespaces (a container must be privileged)"
    )
    _try(["unshare", "--net", "sh", "-c", _TRY_NETWORK], "cannot make a bridge with veth cables")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".bed-try-") as tried:
        _try(
            ["unshare", "--mount", "sh", "-c", _TRY_OVERLAY, tried],
            f"cannot mount an overlay over {folder} (put the state on a plain local disk with BED_DIR)",
        )


def _try(argv: list[str], otherwise: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise NotPossibleError(f"this machine {otherwise}: {done.stderr.strip()[-300:]}")


def check_existing_slurm() -> None:
    """BED_SLURM=existing: sbatch must be here and slurmctld must answer."""
    if shutil.which("sbatch") is None:
        raise NotPossibleError(
            "BED_SLURM=existing, but there is no sbatch in PATH: unset it, or install Slurm's commands"
        )
    done = subprocess.run(["sinfo", "-h"], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise NotPossibleError(
            f"BED_SLURM=existing, but its slurmctld does not answer: {done.stderr.strip()[-300:]}"
        )


def needed_space(places: Places, plan: Plan) -> int:
    """What is yet to be built, in bytes of the cache."""
    missing_roots = [name for name in plan.roots if not roots.is_built(places, name)]
    kube = plan.options.kube is Source.OWN and not (places.cache / "kube").exists()
    return len(missing_roots) * _ROOT_BYTES + kube * _KUBE_BYTES


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _free(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free


def _text(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise BedError(f"{file} cannot be read: {error.strerror}") from error
