"""Helm, built from the Go module beside this package, as the cluster's programs are.

Most of what it needs is compiled for Kubernetes already: a minute and a quarter on two cores after that.
"""

from __future__ import annotations

from pathlib import Path

from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.programs.golang import Program, Progress, ensure_program, required_version

MODULE = PACKAGE.parent / "helm"
PACKAGE_OF_HELM = "helm.sh/helm/v3"


def ensure_helm(places: Places, progress: Progress) -> Path:
    """The program."""
    modules = MODULE / "go.mod"
    linker_flags = version_flags(
        required_version(modules, PACKAGE_OF_HELM), required_version(modules, "k8s.io/client-go")
    )
    program = Program("helm", MODULE, "some 900", f"{PACKAGE_OF_HELM}/cmd/helm", linker_flags)
    return ensure_program(program, places, progress)


def version_flags(helm: str, client: str) -> str:
    """For the linker: what Helm says it is, and which Kubernetes it takes for granted without a cluster."""
    minor = client.split(".")[1]
    values = {"internal/version.version": helm}
    for package in ("pkg/chartutil", "pkg/lint/rules"):
        values |= {f"{package}.k8sVersionMajor": "1", f"{package}.k8sVersionMinor": minor}
    return " ".join(["-s", "-w", *(f"-X {PACKAGE_OF_HELM}/{name}={value}" for name, value in values.items())])
