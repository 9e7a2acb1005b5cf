"""The Debian trees that hosts have as their read-only lower layer: what is in each, and building them once.

A root is known by a hash of its recipe, built beside its place and renamed, so that a half-built one is never used.
Which host has which root is the plan's; the writable layer above is host.py's.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from redbox_bed.errors import BedError
from redbox_bed.places import PACKAGE
from redbox_bed.users import account_commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redbox_bed.places import Places

BUILD_SECONDS = 1800
_RECIPES = PACKAGE / "recipes"

_SLURM = (
    "slurmctld", "slurmdbd", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin",
    "slurmrestd", "slurm-wlm-jwt-plugin", "munge", "mariadb-server",
)  # fmt: skip
_LOGIN = (
    "openssh-server", "openssh-client", "sudo", "python3", "iproute2", "iputils-ping", "procps", "ca-certificates",
    "curl", "jq", "rsync", "less", "tini", "busybox-static", "netbase",
)  # fmt: skip
_MPI = ("openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev")
_CONTAINERS = ("uidmap", "squashfs-tools", "squashfuse", "fuse3", "fuse2fs")
_NODE = (
    "containerd", "runc", "containernetworking-plugins", "iptables", "iproute2", "conntrack", "socat", "ethtool",
    "kmod", "mount", "procps", "tini", "ca-certificates", "curl", "iputils-ping", "busybox-static", "netbase",
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """All that decides what a root contains. `from_sid` are packages that the suite itself lacks."""

    name: str
    suite: str
    packages: tuple[str, ...]
    from_sid: tuple[str, ...]
    setup: str
    files: dict[str, str]

    @property
    def key(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _text(name: str) -> str:
    return (_RECIPES / name).read_text()


def _slurm_recipe(release: str, suite: str) -> Recipe:
    return Recipe(
        name=f"slurm-{release}",
        suite=suite,
        packages=_SLURM + _LOGIN + _MPI + _CONTAINERS,
        from_sid=("apptainer",),
        setup=account_commands() + _text("slurm.sh"),
        files={"pingpong.c": _text("pingpong.c")},
    )


def recipe(name: str) -> Recipe:
    """The recipe of a root by the name that the plan uses."""
    if name == "slurm-24.11":
        return _slurm_recipe("24.11", "trixie")
    if name == "slurm-22.05":
        return _slurm_recipe("22.05", "bookworm")
    return Recipe("node", "trixie", _NODE, (), _text("node.sh"), {})


def root_path(places: Places, name: str) -> Path:
    return places.cache / "roots" / recipe(name).key


def is_built(places: Places, name: str) -> bool:
    return root_path(places, name).is_dir()


def ensure_root(places: Places, name: str) -> Path:
    """The finished root; built now if it is missing (a minute or two), or waited for if another process builds it."""
    target = root_path(places, name)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / f"{name}.lock"):
        if not target.is_dir():
            _remove_unfinished(target.parent, name)
            _build(recipe(name), target)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_unfinished(folder: Path, name: str) -> None:
    for leftover in folder.glob(f"{name}-*.unfinished"):
        shutil.rmtree(leftover)


def _build(recipe: Recipe, target: Path) -> None:
    unfinished = target.with_name(target.name + ".unfinished")
    log = target.with_name(target.name + ".log")
    try:
        with log.open("wb") as output:
            for argv, script in _steps(recipe, unfinished):
                subprocess.run(
                    argv,
                    input=script.encode(),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=True,
                    timeout=BUILD_SECONDS,
                    cwd="/",
                )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise BedError(f"the root {recipe.name} (Debian {recipe.suite}) could not be built", log=log) from error
    unfinished.rename(target)


def _steps(recipe: Recipe, tree: Path) -> Iterator[tuple[list[str], str]]:
    """What is run, in turn: a command and its standard input."""
    yield mmdebstrap_command(recipe, tree, machine_mirror(), machine_proxy()), ""
    if recipe.from_sid:
        yield ["chroot", str(tree), "sh", "-eu", "-s", "--", *recipe.from_sid], _text("sid.sh")
    folder = tree / "tmp" / "setup"
    folder.mkdir()
    for name, text in recipe.files.items():
        (folder / name).write_text(text)
    yield ["chroot", str(tree), "sh", "-eu", "-s", "--", "/tmp/setup"], recipe.setup
    yield ["chroot", str(tree), "sh", "-c", "rm -rf /tmp/setup /var/cache/apt/archives/*.deb"], ""


def mmdebstrap_command(recipe: Recipe, tree: Path, mirror: str | None, proxy: str | None) -> list[str]:
    """The call for the suite's own packages; without a mirror mmdebstrap takes Debian's default."""
    return [
        "mmdebstrap",
        "--variant=apt",
        "--mode=root",
        "--format=directory",
        f"--include={','.join(recipe.packages)}",
        *([f'--aptopt=Acquire::http::Proxy "{proxy}"'] if proxy else []),
        recipe.suite,
        str(tree),
        *([mirror] if mirror else []),
    ]


def machine_mirror() -> str | None:
    """The mirror that this machine's own apt uses, if the machine is a Debian; an Ubuntu's mirror has no Debian."""
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL) $(COMPONENT)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return first_debian_mirror(listing.stdout)


def first_debian_mirror(listing: str) -> str | None:
    """Of lines "URI ORIGIN LABEL COMPONENT" the first plain Debian (its security archive has another label)."""
    for line in listing.splitlines():
        uri, *release = line.split()
        if release == ["Debian", "Debian", "main"]:
            return uri
    return None


def machine_proxy() -> str | None:
    """The proxy that apt is told to use; mmdebstrap does not read the machine's apt configuration."""
    answer = subprocess.run(
        ["apt-config", "shell", "PROXY", "Acquire::http::Proxy"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return answer.stdout.partition("=")[2].strip().strip("'") or None
