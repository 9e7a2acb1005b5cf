"""Kubernetes' own end-to-end tests and what they run, built from the Go module beside this package.

The sources are those of the Kubernetes that the bed runs. Only `make conformance` asks for them: nine minutes
on two cores the first time, a quarter of a minute after a small change.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.core.build_cache import contents_of, ensure_built, key_of
from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.programs.golang import Build, Progress, find_go, go_version_text, required_version
from redbox_bed.programs.kubernetes import version_flags

MODULE = PACKAGE.parent / "kube-e2e"
KUBERNETES = "k8s.io/kubernetes"
GINKGO = "github.com/onsi/ginkgo/v2"
PACKAGES = {
    "agnhost": f"{KUBERNETES}/test/images/agnhost",
    "nonewprivs": f"{KUBERNETES}/test/images/nonewprivs",
    "ginkgo": f"{GINKGO}/ginkgo",
    "e2e.test": ".",
}


def ensure_kube_e2e(places: Places, progress: Progress) -> Path:
    """A folder with the programs of PACKAGES."""
    go = find_go(places, progress)
    linker_flags = version_flags(required_version(MODULE / "go.mod", KUBERNETES))
    key = key_of(contents_of(MODULE, "*.go", "go.mod", "go.sum"), go_version_text(go), linker_flags)
    shelf = places.cache / "kube-e2e"
    build = Build("Kubernetes' tests", MODULE, shelf / f"{key}.log", "some 3,000", progress)

    def compile_into(folder: Path) -> None:
        for program, package in PACKAGES.items():
            build.run(go, output=folder / program, package=package, linker_flags=linker_flags)

    return ensure_built(shelf / key, compile_into)
