"""A cluster that the user has: taken instead of one of the bed's own, after a look whether it answers.

Nothing is started in it or changed. Its kubeconfig is copied to where the bed's own would be, so that all
that follows need not know the difference.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from redbox_bed.core.commands import run_command
from redbox_bed.core.errors import NotPossibleError
from redbox_bed.core.places import Places
from redbox_bed.core.progress import Progress
from redbox_bed.programs.kubernetes import ensure_programs

_ANSWER_SECONDS = 20


def find_cluster(places: Places, progress: Progress) -> tuple[Path, str]:
    """A kubectl, and the address of the cluster of KUBECONFIG (or kubectl's own default), which answers."""
    found = shutil.which("kubectl")
    kubectl = Path(found) if found else ensure_programs(places, progress) / "kubectl"
    server = _ask(kubectl, "config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}")
    _ask(kubectl, "get", "--raw=/readyz", f"--request-timeout={_ANSWER_SECONDS // 2}s")
    return kubectl, server


def adopt(places: Places, progress: Progress) -> None:
    """Use it."""
    kubectl, server = find_cluster(places, progress)
    places.kubeconfig.touch(mode=0o600)
    places.kubeconfig.write_text(_ask(kubectl, "config", "view", "--minify", "--raw", "--flatten"))
    link_program(places, kubectl)
    progress(
        f"using the existing cluster at {server}, of KUBECONFIG; no Kubernetes of the bed's own is started"
    )


def link_program(places: Places, program: Path) -> None:
    """A kubectl, or helm, that fits the cluster, beside its kubeconfig."""
    link = places.state / "bin" / program.name
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink() or link.readlink() != program:
        link.unlink(missing_ok=True)
        link.symlink_to(program)


def _ask(kubectl: Path, *arguments: str) -> str:
    named = os.environ.get("KUBECONFIG") or "none, so kubectl's default"
    failure = f"BED_KUBE=existing, but the cluster of KUBECONFIG ({named}) does not answer"
    return run_command([kubectl, *arguments], failure, timeout=_ANSWER_SECONDS, error_type=NotPossibleError)
