"""The Debian trees that hosts have as their read-only lower layer: what is in each, and building them once.

A root is known by a hash of its recipe; a half-built one is never used (build_cache.py).
Which host has which root is the plan's; the writable layer above is host.py's.

Debian's unstable changes from day to day and has one release of Slurm at a time. A root of it is what
unstable was when it was built. Once unstable installs no more, an older root serves a changed recipe.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from redbox_bed.core.build_cache import KEY_LENGTH, ensure_built, key_of
from redbox_bed.core.errors import BedError, RootUnavailableError
from redbox_bed.core.places import Places
from redbox_bed.hosts.users import account_commands

BUILD_SECONDS = 1800
UNSTABLE = "sid"
# An Ubuntu's apt trusts no Debian, and mmdebstrap takes what apt trusts.
DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# mmdebstrap mounts /proc, /sys and parts of /dev in the tree that it makes. With mounts and processes of its
# own a build that dies with `up` leaves none behind, and what is left of the tree can be removed safely.
ISOLATED = (
    "setpriv", "--pdeathsig", "KILL", "--",
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
)  # fmt: skip
_RECIPES = Path(__file__).with_name("recipes")

_SLURM = (
    "slurmctld", "slurmdbd", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin",
    "slurmrestd", "slurm-wlm-jwt-plugin", "munge", "mariadb-server",
)  # fmt: skip
_LOGIN = (
    "openssh-server", "openssh-client", "sudo", "python3", "iproute2", "iputils-ping", "procps",
    "ca-certificates", "curl", "jq", "rsync", "less", "tini", "busybox-static", "netbase",
    "tzdata",
)  # fmt: skip
_MPI = ("openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev")
# For examples/recipes.
_PYTHON = ("python3-mpi4py", "python3-distributed")
_CONTAINERS = ("uidmap", "squashfs-tools", "squashfuse", "fuse3", "fuse2fs")
_NODE = (
    "containerd", "runc", "containernetworking-plugins", "iptables", "iproute2", "conntrack", "socat",
    "ethtool", "kmod", "mount", "procps", "tini", "ca-certificates", "curl", "iputils-ping", "busybox-static",
    "netbase", "nginx",
)  # fmt: skip


@dataclass(frozen=True)
class Recipe:
    """All that decides what a root contains. `setup` runs inside it at the end, with `files` beside it."""

    name: str
    suite: str
    packages: tuple[str, ...]
    setup: str
    files: dict[str, str]

    @property
    def key(self) -> str:
        return f"{self.name}-{key_of(json.dumps(asdict(self), sort_keys=True))}"


def _text(name: str) -> str:
    return (_RECIPES / name).read_text()


def _slurm_recipe(release: str, suite: str, apptainer: str, *more: str) -> Recipe:
    return Recipe(
        name=f"slurm-{release}",
        suite=suite,
        packages=_SLURM + _LOGIN + _MPI + _CONTAINERS + more,
        setup=account_commands() + _text("sid.sh") + _text(apptainer) + _text("slurm.sh"),
        files={"pingpong.c": _text("pingpong.c")},
    )


def _unstable_slurm_recipe(release: str) -> Recipe:
    own = "".join(_text(name) for name in ("only-release.sh", "mariadb-folders.sh"))
    return Recipe(
        name=f"slurm-{release}",
        suite=UNSTABLE,
        packages=(
            *_SLURM,
            *_LOGIN,
            *_MPI,
            *_CONTAINERS,
            "systemd-standalone-tmpfiles",
            "apptainer",
        ),
        setup=f"release={release}\n" + account_commands() + own + _text("slurm.sh"),
        files={"pingpong.c": _text("pingpong.c")},
    )


def recipe(name: str) -> Recipe:
    """The recipe of a root by the name that the plan uses."""
    if name == "slurm-24.11":
        return _slurm_recipe("24.11", "trixie", "apptainer.sh", *_PYTHON)
    if name == "slurm-22.05":
        return _slurm_recipe("22.05", "bookworm", "apptainer-own-libc.sh", "systemd-standalone-tmpfiles")
    if name == "slurm-26.05":
        return _unstable_slurm_recipe("26.05")
    return Recipe("node", "trixie", _NODE, _text("node.sh"), {})


def root_path(places: Places, name: str) -> Path:
    """Where the root is, or will be; of unstable an older one, as long as this recipe's is not built."""
    exact = _exact_path(places, name)
    if exact.is_dir() or recipe(name).suite != UNSTABLE:
        return exact
    whole = exact.parent.glob(f"{name}-{'[0-9a-f]' * KEY_LENGTH}")
    return max(whole, key=_built_at, default=exact)


def _exact_path(places: Places, name: str) -> Path:
    return places.cache / "roots" / recipe(name).key


def _built_at(root: Path) -> float:
    return root.stat().st_mtime


def is_built(places: Places, name: str) -> bool:
    """By this very recipe."""
    return _exact_path(places, name).is_dir()


def ensure_root(places: Places, name: str) -> Path:
    """The finished root: built now if it is missing, or waited for if another process builds it."""
    try:
        return ensure_built(_exact_path(places, name), lambda tree: _build(recipe(name), tree))
    except RootUnavailableError:
        older = root_path(places, name)
        if not older.is_dir():
            raise
        return older


def age_in_words(places: Places, name: str) -> str | None:
    """Of a root of unstable, since when it is as it is; None for the others, whose suites do not move on."""
    if recipe(name).suite != UNSTABLE:
        return None
    root = root_path(places, name)
    built = f"{datetime.fromtimestamp(_built_at(root), UTC):%Y-%m-%d}"
    if root == _exact_path(places, name):
        return f"the root {name} is Debian's unstable of {built}"
    return f"Debian's unstable does not install: the root {name} is the one of {built} in the cache"


def _build(recipe: Recipe, tree: Path) -> None:
    log = tree.with_suffix(".log")
    try:
        with log.open("wb") as output:
            for argv in _steps(recipe, tree):
                subprocess.run(
                    [*ISOLATED, *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=True,
                    timeout=BUILD_SECONDS,
                    cwd="/",
                )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        if recipe.suite == UNSTABLE:
            raise RootUnavailableError(
                f"the root {recipe.name} could not be built: Debian's unstable has moved on or is away",
                log=log,
            ) from error
        raise BedError(
            f"the root {recipe.name} (Debian {recipe.suite}) could not be built", log=log
        ) from error


def _steps(recipe: Recipe, tree: Path) -> Iterator[list[str]]:
    """The commands that make the root, in turn."""
    yield mmdebstrap_command(recipe, tree, machine_mirror(), machine_proxy())
    folder = tree / "root" / "setup"
    folder.mkdir()
    for name, text in {**recipe.files, "setup.sh": recipe.setup}.items():
        (folder / name).write_text(text)
    yield ["chroot", str(tree), "sh", "-eux", "/root/setup/setup.sh", "/root/setup"]
    yield ["chroot", str(tree), "sh", "-c", "rm -rf /root/setup /var/cache/apt/archives/*.deb"]


def mmdebstrap_command(recipe: Recipe, tree: Path, mirror: str | None, proxy: str | None) -> list[str]:
    """The call for the suite's own packages; without a mirror mmdebstrap takes Debian's default."""
    return [
        "mmdebstrap",
        "--variant=apt",
        "--mode=root",
        "--format=directory",
        f"--keyring={DEBIAN_KEYS}",
        f"--include={','.join(recipe.packages)}",
        *([f'--aptopt=Acquire::http::Proxy "{proxy}"'] if proxy else []),
        # A mirror's copy of unstable may be older than unstable's Release says that it may be.
        *(['--aptopt=Acquire::Check-Valid-Until "false"'] if recipe.suite == UNSTABLE else []),
        recipe.suite,
        str(tree),
        *([mirror] if mirror else []),
    ]


def machine_mirror() -> str | None:
    """The mirror that this machine's apt uses, if it is a Debian; an Ubuntu's has no Debian."""
    listing = subprocess.run(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(REPO_URI) $(ORIGIN) $(LABEL) $(COMPONENT)",
            "Created-By: Packages",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return first_debian_mirror(listing.stdout)


def first_debian_mirror(listing: str) -> str | None:
    """Of lines "URI ORIGIN LABEL COMPONENT" the plain Debian; its security archive has another LABEL."""
    for line in listing.splitlines():
        uri, *release = line.split()
        if release == ["Debian", "Debian", "main"]:
            return uri
    return None


def machine_proxy() -> str | None:
    """The proxy of the machine's apt configuration, which mmdebstrap does not read."""
    answer = subprocess.run(
        ["apt-config", "shell", "PROXY", "Acquire::http::Proxy"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return answer.stdout.partition("=")[2].strip().strip("'") or None
