"""The cluster's programs, built from the Go module beside this package: once, into the cache.

One program is etcd and all of Kubernetes' daemons, selected by the name of the call; `pause` and `kubectl`
are programs of their own.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.core.build_cache import contents_of, ensure_built, key_of
from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.programs.golang import Build, Progress, find_go, go_version_text, required_version

MODULE = PACKAGE.parent / "kube"
DAEMONS = (
    *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("kubelet", "kube-proxy"),
)


def ensure_programs(places: Places, progress: Progress) -> Path:
    """A folder with `kube`, a link to it for each of DAEMONS, `kubectl` and `pause`."""
    go = find_go(places, progress)
    linker_flags = version_flags(required_version(MODULE / "go.mod", "k8s.io/kubernetes"))
    key = key_of(contents_of(MODULE, "*.go", "go.mod", "go.sum"), go_version_text(go), linker_flags)
    log = places.cache / "kube" / f"{key}.log"
    build = Build("Kubernetes", MODULE, log, "some 3,000", progress)
    return ensure_built(places.cache / "kube" / key, lambda folder: _build(build, go, linker_flags, folder))


def version_flags(version: str) -> str:
    """For the linker: no symbols (a quarter of the size), and the version that the programs say they are."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X {package}.{name}={value}" for name, value in values.items())])


def _build(build: Build, go: str, linker_flags: str, folder: Path) -> None:
    for program, package in (("pause", "./pause"), ("kubectl", "./kubectl"), ("kube", ".")):
        build.run(go, output=folder / program, package=package, linker_flags=linker_flags)
    for name in DAEMONS:
        (folder / name).symlink_to("kube")
