"""red-box's virtual environment for login nodes: a folder that lies anywhere and uses the host's own Python.

It holds the locked dependencies for each supported Python side by side. That is possible because compiled
modules have the interpreter's version in their names, and all other files of a package are the same for each
of them; a build that finds two different modules of one name fails. The folders `lib/python3.*` are links.
"""

from __future__ import annotations

import filecmp
import shutil
import sys
import zipfile
from functools import partial
from pathlib import Path

from redbox_bed.core.build_cache import ensure_built, key_of
from redbox_bed.core.commands import run_command
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT, Places

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LOCK = CHECKOUT / "deploy/local/server.lock"
SITE_PACKAGES = "lib/python3/site-packages"
# The oldest C library for which all dependencies have wheels.
GLIBC = "2.34"
_GLIBC_VERSIONS = ("2_34", "2_28", "2_17", "2_12", "2_5")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""As Debian and images name them, and as wheels do."""
_WITHIN_S = 600
# -I: neither the working directory nor the environment decides what is imported.
_PROGRAM = """\
#!/bin/sh
# red-box, with the Python and the libraries of the folder that this file lies in.
exec "$(dirname -- "$(readlink -f -- "$0")")/python3" -I -m redbox "$@"
"""


def write_environment(folder: Path, wheel: Path, architecture: str) -> None:
    """The environment in `folder`, still without an interpreter: `lay_python` or `install` gives it one."""
    library = folder / SITE_PACKAGES
    shutil.copytree(_dependencies(architecture), library)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(library)
    _forget_installation(library)
    for python in PYTHONS:
        (folder / f"lib/python{python}").symlink_to("python3")
    program = folder / "bin/redbox"
    program.parent.mkdir()
    program.write_text(_PROGRAM)
    program.chmod(0o755)


def lay_python(folder: Path, python: Path) -> None:
    """Have the environment use this interpreter."""
    (folder / "bin/python3").symlink_to(python)
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")


def _dependencies(architecture: str) -> Path:
    key = key_of(LOCK.read_bytes(), repr(PYTHONS), architecture)
    return ensure_built(Places.of().cache / "release" / f"server-{key}", partial(_install_all, architecture))


def _install_all(architecture: str, folder: Path) -> None:
    for python in PYTHONS:
        own = folder.with_name(folder.name + f".{python}")
        shutil.rmtree(own, ignore_errors=True)
        run_command(
            _install_command(own, python, architecture), f"wheels for Python {python}", timeout=_WITHIN_S
        )
        shutil.rmtree(own / "bin", ignore_errors=True)  # their first lines name the Python of this machine
        _forget_installation(own)
        overlay(own, folder)
        shutil.rmtree(own)


def _install_command(target: Path, python: str, architecture: str) -> list[str]:
    machine = MACHINES.get(architecture, architecture)
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--target", str(target), "--no-deps", "--no-compile"),
        *("--require-hashes", "--only-binary=:all:", "--requirement", str(LOCK)),
        *("--implementation", "cp", "--python-version", python),
        *(option for glibc in _GLIBC_VERSIONS for option in ("--platform", f"manylinux_{glibc}_{machine}")),
        *("--platform", f"manylinux2014_{machine}"),
    ]


def overlay(source: Path, target: Path) -> None:
    """The files of `source` in `target`; raises BedError where a module is there with another content."""
    for path in sorted(path for path in source.rglob("*") if not path.is_dir()):
        place = target / path.relative_to(source)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
        elif path.relative_to(source).parts[0].endswith(".dist-info"):
            continue  # how the wheel was built: nothing reads it
        elif not filecmp.cmp(path, place, shallow=False):
            raise BedError(
                f"{path.relative_to(source)} differs between versions of Python: one folder cannot hold both"
            )


def _forget_installation(library: Path) -> None:
    """Without what names the installer's files and paths: a single package is never uninstalled from here."""
    for name in ("RECORD", "REQUESTED", "INSTALLER", "direct_url.json"):
        for file in library.glob(f"*.dist-info/{name}"):
            file.unlink()
