"""A layer with packages of Debian, made once and kept in the cache: the images of Slurm and of MariaDB."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redbox_bed.core.build_cache import ensure_built, key_of
from redbox_bed.core.commands import run_command
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.roots import ISOLATED, machine_mirror, machine_proxy
from redbox_bed.images.oci import write_layer
from redbox_bed.images.project_images import CLEAN, COMPILE, debian_command

_BUILD_SECONDS = 900


@dataclass(frozen=True)
class DebianLayer:
    """All that decides what is in it."""

    name: str
    title: str
    suite: str
    packages: tuple[tuple[str, ...], ...]
    """In groups."""
    forget: str
    """A line of sh that removes from the tree $1 what packages made for the machine they are installed on."""
    compiles_python: bool = False

    def ensure(self, shelf: Path, progress: Progress) -> Path:
        """The folder with `layer.tar`, and with `tree`, of which the layer was made."""
        compiled = (COMPILE,) if self.compiles_python else ()
        key = key_of(repr((self.suite, *self.packages, CLEAN, self.forget, *compiled)))
        folder = shelf / f"{self.name}-{key}"
        if not folder.is_dir():
            progress(f"making {self.title}, once")
        return ensure_built(folder, self._build)

    def _build(self, folder: Path) -> None:
        tree = folder / "tree"
        run = partial(
            run_command,
            failure=f"{self.title} could not be built; has Debian {self.suite} other versions than it names",
            timeout=_BUILD_SECONDS,
            cwd="/",
        )
        packages = [package for group in self.packages for package in group]
        run([*ISOLATED, *debian_command(self.suite, packages, tree, machine_mirror(), machine_proxy())])
        run(["sh", "-ec", CLEAN, "clean", str(tree)])
        run(["sh", "-ec", self.forget, "forget", str(tree)])
        if self.compiles_python:
            run(["chroot", str(tree), "sh", "-ec", f"{' '.join(COMPILE)} /usr/lib/python3.*"])
        write_layer(folder / "layer.tar", tree)
