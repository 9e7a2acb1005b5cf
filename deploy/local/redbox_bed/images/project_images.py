"""The project's own images: a minimal Debian, a program's locked dependencies, the project's wheel on top.

Each layer is kept in the cache under a hash of what it is made from: a change of our own code rebuilds
only the last one.
"""

from __future__ import annotations

import configparser
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redbox_bed.core.build_cache import contents_of, ensure_built, forget_unused, key_of
from redbox_bed.core.commands import run_command
from redbox_bed.core.places import CHECKOUT, Places
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.roots import DEBIAN_KEYS, UNSTABLE, machine_mirror, machine_proxy
from redbox_bed.images.contents import FOLDER, ImageList, Program, read_image_list
from redbox_bed.images.node_images import REGISTRY, architecture
from redbox_bed.images.oci import Entry, Image, read_layer, write_layer

_BUILD_SECONDS = 900
# Each change of our code leaves a layer of some 3 MB in the cache.
_KEPT_SECONDS = 24 * 3600
_SOURCES = ("redbox", "companion", "operator", "resourced")
# Newest first; pip takes a wheel of any of them.
_GLIBC_VERSIONS = ("2_34", "2_28", "2_17", "2_12", "2_5")
# By content, not by time: the layers have no times.
COMPILE = ["python3", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash"]
# What a build leaves behind: none of it is the same twice, none is of use in a container.
CLEAN = 'rm -rf "$1"/dev/* "$1"/var/log/* "$1"/var/cache/* "$1"/var/lib/apt "$1"/etc/machine-id'
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WITHOUT = ("man", "locale", "doc", "info", "lintian", "bug")


def project_images(places: Places, progress: Progress) -> tuple[Image, ...]:
    """`bed.local/NAME:dev` for each program of the list, from the checkout as it is now."""
    workshop = Workshop(places.cache / "images", read_image_list(), progress)
    base = workshop.base()
    project = workshop.project(base)
    return tuple(workshop.image(program, base, project) for program in workshop.listed.programs)


@dataclass(frozen=True)
class Workshop:
    """Makes layers, each a folder of `shelf` with `layer.tar` in it, and images of them."""

    shelf: Path
    listed: ImageList
    progress: Progress

    def image(self, program: Program, base: Path, project: Path) -> Image:
        needs = [self.dependencies(FOLDER / program.lock, base)] if program.lock else []
        return Image(
            name=f"{REGISTRY}/{program.name}:dev",
            architecture=architecture(),
            layers=tuple(read_layer(folder / "layer.tar") for folder in (base, *needs, project)),
            entrypoint=program.entrypoint,
            user=self.listed.user,
            environment={"PATH": PATH, **self.listed.environment},
            labels={**self.listed.labels, "org.opencontainers.image.title": program.title},
        )

    def base(self) -> Path:
        """Debian with Python; `tree` in it is also where layers above are compiled."""
        listed = self.listed
        key = key_of(repr((listed.suite, listed.packages, listed.account, _WITHOUT, CLEAN, COMPILE)))
        return self._ensure(f"base-{key}", partial(_build_base, listed), f"the images' Debian {listed.suite}")

    def dependencies(self, locked: Path, base: Path) -> Path:
        key = key_of(locked.read_bytes(), base.name, self.listed.library)
        build = partial(_build_dependencies, self.listed, locked, base)
        return self._ensure(f"{locked.stem}-{key}", build, f"what the {locked.stem} need in their images")

    def project(self, base: Path) -> Path:
        sources = b"".join(contents_of(CHECKOUT / source, "*.*") for source in _SOURCES)
        key = key_of(sources, (CHECKOUT / "pyproject.toml").read_bytes(), base.name, self.listed.library)
        forget_unused(self.shelf, "project-*", time.time() - _KEPT_SECONDS)
        return self._ensure(f"project-{key}", partial(_build_project, self.listed, base))

    def _ensure(self, name: str, build: Callable[[Path], object], once: str = "") -> Path:
        if once and not (self.shelf / name).is_dir():
            self.progress(f"making {once}, once")
        return ensure_built(self.shelf / name, build)


# ---------------------------------------------------------------------------------------------- Debian
def _build_base(listed: ImageList, folder: Path) -> None:
    tree = folder / "tree"
    _run(
        debian_command(listed.suite, listed.packages, tree, machine_mirror(), machine_proxy()),
        "the images' Debian root",
    )
    _run(["sh", "-ec", CLEAN, "clean", str(tree)], "the images' Debian root")
    for file, line in zip(("passwd", "group"), listed.account, strict=True):
        with (tree / "etc" / file).open("a") as accounts:
            accounts.write(f"{line}\n")
    _run(["chroot", str(tree), *COMPILE, f"/usr/lib/python{listed.python}"], "Python's library in the images")
    write_layer(folder / "layer.tar", tree)


def debian_command(
    suite: str, packages: Sequence[str], tree: Path, mirror: str | None, proxy: str | None
) -> list[str]:
    """Essential packages and these; no package manager, no manuals, no translations."""
    return [
        "mmdebstrap",
        "--variant=essential",
        "--mode=root",
        "--format=directory",
        f"--keyring={DEBIAN_KEYS}",
        f"--include={','.join(packages)}",
        *(f"--dpkgopt=path-exclude=/usr/share/{kind}/*" for kind in _WITHOUT),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        *([f'--aptopt=Acquire::http::Proxy "{proxy}"'] if proxy else []),
        *(['--aptopt=Acquire::Check-Valid-Until "false"'] if suite == UNSTABLE else []),
        suite,
        str(tree),
        *([mirror] if mirror else []),
    ]


# ---------------------------------------------------------------------------------------------- dependencies
def _build_dependencies(listed: ImageList, locked: Path, base: Path, folder: Path) -> None:
    library = folder / "tree" / listed.library
    _run(dependencies_command(listed, locked, library), f"the dependencies in {locked}")
    # Scripts of dependencies: their first line names this machine's Python, and nothing calls them.
    shutil.rmtree(library / "bin", ignore_errors=True)
    compile_library(base / "tree", library, listed.library)
    write_layer(folder / "layer.tar", folder / "tree")
    shutil.rmtree(folder / "tree")


def dependencies_command(listed: ImageList, locked: Path, library: Path) -> list[str]:
    """Wheels for the image's Python and C library, which are not this machine's."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(architecture(), architecture())
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--target", str(library), "--no-deps", "--no-compile"),
        *("--require-hashes", "--only-binary=:all:", "--requirement", str(locked)),
        *("--implementation", "cp", "--python-version", listed.python),
        *(option for glibc in _GLIBC_VERSIONS for option in ("--platform", f"manylinux_{glibc}_{machine}")),
        *("--platform", f"manylinux2014_{machine}"),
    ]


# ---------------------------------------------------------------------------------------------- our own code
def _build_project(listed: ImageList, base: Path, folder: Path) -> None:
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-input"]
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(wheels)]
    _run([*pip, *options, str(CHECKOUT)], "the project's wheel")
    library = folder / "tree" / listed.library
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        wheel.extractall(library)
    compile_library(base / "tree", library, listed.library)
    metadata = next(library.glob("*.dist-info/entry_points.txt"))
    write_layer(folder / "layer.tar", folder / "tree", console_scripts(metadata.read_text()))
    shutil.rmtree(folder / "tree")
    shutil.rmtree(wheels)


def console_scripts(entry_points: str) -> list[Entry]:
    """The programs in /usr/local/bin, as an installer makes them, from a wheel's entry_points.txt."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(entry_points)
    return [
        Entry(f"usr/local/bin/{name}", _script(*target.split(":")), 0o755)
        for name, target in parser["console_scripts"].items()
    ]


def _script(module: str, function: str) -> bytes:
    # -I: neither the working directory nor the environment decides what is imported.
    lines = (
        "#!/usr/bin/python3 -I",
        "import sys",
        f"from {module} import {function}",
        f"sys.exit({function}())",
    )
    return "".join(f"{line}\n" for line in lines).encode()


# ---------------------------------------------------------------------------------------------- running tools
def compile_library(tree: Path, library: Path, name: str) -> None:
    """Compile with the image's own Python, so that no container has to at its start."""
    inside = tree / name
    inside.mkdir(parents=True, exist_ok=True)
    script = 'mount --bind "$1" "$2" && shift 2 && exec chroot "$@"'
    command = [str(tree), *COMPILE, f"/{name}"]
    _run(
        ["unshare", "--mount", "sh", "-ec", script, "compile", str(library), str(inside), *command],
        f"the compiled code of {library}",
    )


def _run(command: Sequence[str], making: str) -> None:
    run_command(command, f"{making} could not be built", timeout=_BUILD_SECONDS, cwd="/")
