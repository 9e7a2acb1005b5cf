"""Red Box in the bed: red-box on the login host, the operator in Kubernetes, a namespace for each user.

What each side's administrator types is what is run here; `login_node` is the Slurm side of it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.errors import BedError
from redbox_bed.images import REGISTRY
from redbox_bed.login_node import Rule
from redbox_bed.places import CHECKOUT
from redbox_bed.progress import Progress

OPERATOR = CHECKOUT / ".venv/bin/redbox-operator"
KUBERNETES_NAME = "bed"
NAMESPACE = "redbox-system"
TENANTS = ("alice", "bob")
KINDS = ("slurmclusters", "slurmjobs")
WITHIN_S = 120


def deliver(bed: Bed, progress: Progress) -> None:
    """Install both sides and introduce them to each other; again, it installs what the checkout now is."""
    kubernetes = Kubernetes(bed)
    login = bed.host("login")
    with progress.step("red-box on the login host"):
        login_node.install(login, bed.places)
        manifest = login_node.introduce(
            login,
            name="hpc1",
            cluster=KUBERNETES_NAME,
            issuer=kubernetes.issuer(),
            keys=kubernetes.keys(),
            rules=[Rule(namespace=name, user=name) for name in TENANTS],
        )
        login_node.restart(login)
    with progress.step("the operator in Kubernetes"):
        kubernetes.apply(_operator_manifests())
        kubernetes(
            "wait", "--for=condition=Established", "crd/slurmclusters.redbox.dev", "crd/slurmjobs.redbox.dev"
        )
        kubernetes.apply(manifest)
        for name in TENANTS:
            kubernetes.apply(
                json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            )
        kubernetes("rollout", "restart", f"--namespace={NAMESPACE}", "deployment/redbox-operator")
        kubernetes(
            "rollout", "status", f"--namespace={NAMESPACE}", "deployment/redbox-operator", "--timeout=90s"
        )


class Kubernetes:
    """kubectl as the cluster's administrator."""

    def __init__(self, bed: Bed) -> None:
        self._command = (str(bed.places.state / "bin/kubectl"), "--kubeconfig", str(bed.places.kubeconfig))

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return _run([*self._command, *arguments], stdin)

    def apply(self, manifests: str) -> None:
        """Server-side, as the one who owns what is said."""
        self("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=manifests)

    def issuer(self) -> str:
        """What its tokens say they come from."""
        return str(json.loads(self("get", "--raw", "/.well-known/openid-configuration"))["issuer"])

    def keys(self) -> bytes:
        """Its public keys, for red-box."""
        return self("get", "--raw", "/openid/v1/jwks").encode()


def _operator_manifests() -> str:
    images = (
        f"--image={REGISTRY}/redbox-operator:dev",
        f"--companion-image={REGISTRY}/redbox-companion:dev",
    )
    return _run([str(OPERATOR), "manifests", *images, f"--namespace={NAMESPACE}"])


def _run(command: Sequence[str], stdin: str | None = None) -> str:
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=True, timeout=WITHIN_S
        )
    except subprocess.SubprocessError as error:
        said = str(getattr(error, "stderr", "") or error).strip()[-1000:]
        raise BedError(f"`{' '.join(command)}` failed: {said}") from error
    return done.stdout
