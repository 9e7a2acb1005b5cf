"""Red Box in the bed: red-box on the login host, the chart in Kubernetes, a namespace for each user.

What each side's administrator types is what is run here; `login_node` is the Slurm side of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed, saved_options
from redbox_bed.core.build_cache import contents_of, key_of
from redbox_bed.core.commands import run_command
from redbox_bed.core.errors import BedError, NotPossibleError
from redbox_bed.core.places import CHECKOUT, Places
from redbox_bed.core.plan import LOOPBACK, SERVICE_PORT, Options, Plan, Role, Source, make_plan
from redbox_bed.core.progress import Progress
from redbox_bed.images.node_images import REGISTRY, import_missing
from redbox_bed.images.oci import image_digest
from redbox_bed.images.project_images import project_images
from redbox_bed.kube.existing import link_program
from redbox_bed.login_node import Rule
from redbox_bed.programs.helm import ensure_helm

KUBERNETES_NAME = "bed"
SLURM_CLUSTER = "hpc1"
NAMESPACE = "redbox-system"
TENANTS = ("alice", "bob")
RELEASE = "red-box"
CHART = CHECKOUT / "deploy/chart"
WITHIN_S = 120
ENDS_WITHIN_S = 300  # Helm tells more than a command that was killed


def deliver(bed: Bed, progress: Progress, *, unless_current: bool = False) -> None:
    """Install both sides and introduce them to each other; again, it installs what the checkout now is.

    With `unless_current` nothing is touched where this very checkout was delivered and still runs.
    """
    refuse_half_a_bed(bed.plan.options)
    registry = _registry(bed)
    kubernetes = Kubernetes(bed)
    login = bed.host("login")
    with progress.step("the project's images"):
        images = _current_images(bed, progress)
    helm = ensure_helm(bed.places, progress)
    checkout = key_of(login_node.version(), contents_of(CHART, "*"), images, registry)
    if unless_current and _stands(bed, checkout):
        progress("both sides run as this checkout has them")
        return
    _delivered(bed).unlink(missing_ok=True)
    with progress.step("red-box on the login host"):
        login_node.install(login, bed.places)
        manifest = login_node.introduce(
            login,
            name=SLURM_CLUSTER,
            cluster=KUBERNETES_NAME,
            issuer=kubernetes.issuer(),
            keys=kubernetes.keys(),
            rules=[Rule(namespace=name, user=name) for name in TENANTS],
            reached_at=reached_at(bed.plan)[0],
        )
        login_node.restart(login)
    with progress.step("the chart in Kubernetes"):
        kubernetes.apply((CHART / "crds/redbox.yaml").read_text())
        for name in TENANTS:
            kubernetes.apply(
                json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            )
        link_program(bed.places, helm)
        Helm(bed).install(chart_values(_introduced(manifest, bed.plan), registry, images))
    _delivered(bed).write_text(checkout)


def take_away(bed: Bed) -> None:
    """What was delivered is gone, and SlurmClusters that others made; red-box's journal stays."""
    _delivered(bed).unlink(missing_ok=True)
    login = bed.host("login")
    if login.running(login_node.SERVICE):
        login.kill(login_node.SERVICE)
    if not (bed.places.state / "bin/helm").exists():
        return
    helm, kubernetes = Helm(bed), Kubernetes(bed)
    if json.loads(helm("list", "--all", "--all-namespaces", "--output=json")):
        helm("uninstall", RELEASE, "--wait", "--timeout=2m")
    kinds = kubernetes("get", "crd", "--output=name").split()
    if any("slurmclusters" in kind for kind in kinds):
        for cluster in kubernetes("get", "slurmclusters", "--output=name").split():
            kubernetes("patch", cluster, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
            kubernetes("delete", cluster, "--ignore-not-found", "--timeout=30s")


def leave_existing(places: Places, progress: Progress) -> None:
    """Red Box is taken out of an existing cluster, which outlives the bed; its CRDs and SlurmJobs stay."""
    options = saved_options(places)
    if options is None or options.kube is not Source.EXISTING:
        return
    bed = Bed(make_plan(options), places)
    if not _delivered(bed).exists():
        return
    try:
        with progress.step("Red Box, out of the existing cluster"):
            take_away(bed)
    except (BedError, OSError) as error:
        progress(f"Red Box stays in the existing cluster: {error}")
        progress(f"there: helm uninstall {RELEASE} --namespace {NAMESPACE}")


def refuse_half_a_bed(options: Options) -> None:
    """Both sides are installed on hosts and in a cluster that the bed knows."""
    if options.slurm is not Source.OWN:
        raise NotPossibleError(
            "this bed uses a Slurm of others (BED_SLURM=existing), on whose login node nothing is installed "
            "from here: docs/administrators/login-node.md says how to"
        )
    if options.kube is Source.NONE:
        raise NotPossibleError(
            "this bed was started with --no-kube, so there is no Kubernetes to install the chart in: "
            "`deploy/local/bed down`, then `deploy/local/bed up`"
        )
    if options.kube is Source.EXISTING and options.address == LOOPBACK:
        raise NotPossibleError(
            "the pods of an existing cluster reach red-box at an address of this machine: `deploy/local/bed "
            "down`, and `up` again with BED_ADDRESS set to one that they have a way to (kind: its bridge's)"
        )


def reached_at(plan: Plan) -> tuple[str, int]:
    """Where pods find the login host's red-box: in the bed's own network, or at the machine's port for it."""
    login = plan.slurm_cluster(SLURM_CLUSTER).login
    if plan.options.kube is Source.OWN:
        return plan.host(login).address, SERVICE_PORT
    forward = next(port for port in plan.forwards if (port.host, port.target_port) == (login, SERVICE_PORT))
    return forward.address, forward.port


def _introduced(manifest: str, plan: Plan) -> dict[str, Any]:
    """The SlurmCluster that `redbox init` printed; of a port that leads to red-box's it cannot know."""
    slurm_cluster: dict[str, Any] = yaml.safe_load(manifest)
    address, port = reached_at(plan)
    slurm_cluster["spec"]["endpoint"] = f"https://{address}:{port}"
    return slurm_cluster


def _delivered(bed: Bed) -> Path:
    """Holds what the checkout was when it was delivered whole."""
    return bed.places.state / "delivered"


def _stands(bed: Bed, checkout: str) -> bool:
    delivered = _delivered(bed)
    if not delivered.is_file() or delivered.read_text() != checkout:
        return False
    releases = json.loads(Helm(bed)("list", "--all", "--filter", f"^{RELEASE}$", "--output", "json"))
    return bed.host("login").running(login_node.SERVICE) and [release["status"] for release in releases] == [
        "deployed"
    ]


def chart_values(slurm_cluster: dict[str, Any], registry: str, images: str) -> dict[str, object]:
    """The chart's values as an administrator writes them. Changed images restart the controllers."""
    annotations = {"redbox.dev/images": images}
    return {
        "images": {"registry": registry, "tag": "dev"},
        "slurmClusters": {slurm_cluster["metadata"]["name"]: slurm_cluster["spec"]},
        "operator": {"podAnnotations": annotations},
        "resourced": {"podAnnotations": annotations},
    }


def _registry(bed: Bed) -> str:
    """Where nodes get the images: they have those of the bed; a cluster of others asks a registry."""
    if bed.plan.options.kube is Source.OWN:
        return REGISTRY
    registry = os.environ.get("REDBOX_REGISTRY", "")
    if not registry:
        raise NotPossibleError(
            "the nodes of an existing cluster need the images from a registry: build them "
            "(deploy/images/Dockerfile), push them as `dev`, and set REDBOX_REGISTRY to where they are"
        )
    return registry


def _current_images(bed: Bed, progress: Progress) -> str:
    """Put images of the code as it is now on the bed's nodes; what tells them from others."""
    images = project_images(bed.places, progress)
    if bed.plan.options.kube is Source.OWN:
        for node in bed.plan.of_role(Role.NODE):
            import_missing(bed.host(node.name), images)
    return key_of(*map(image_digest, images))


class Helm:
    """helm as the cluster's administrator, on the one release of the bed."""

    def __init__(self, bed: Bed) -> None:
        self._command = (
            *(str(bed.places.state / "bin/helm"), "--kubeconfig", str(bed.places.kubeconfig)),
            *("--namespace", NAMESPACE),
        )

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return _run(self.command(*arguments), stdin)

    def command(self, *arguments: str) -> list[str]:
        """For one who starts it and reads along."""
        return [*self._command, *arguments]

    def install(self, values: dict[str, object], *options: str) -> str:
        """Install, or bring what is installed to these values."""
        self._settle()
        return self(
            *("upgrade", RELEASE, str(CHART), "--install", "--create-namespace", "--take-ownership"),
            *("--wait", f"--timeout={WITHIN_S}s", "--values=-", *options),
            stdin=json.dumps(values),
        )

    def _settle(self) -> None:
        """Undo what a killed helm has left half-way, which the next one would refuse to go on from."""
        releases = json.loads(self("list", "--all", "--filter", f"^{RELEASE}$", "--output", "json"))
        if not releases or releases[0]["status"] == "deployed":
            return
        history = json.loads(self("history", RELEASE, "--output", "json"))
        worked = any(revision["status"] in {"deployed", "superseded"} for revision in history)
        if not worked:
            self("uninstall", RELEASE, "--no-hooks")
        elif releases[0]["status"] != "failed":
            self("rollback", RELEASE, "--no-hooks")


class Kubernetes:
    """kubectl as the cluster's administrator."""

    def __init__(self, bed: Bed) -> None:
        self.kubeconfig = bed.places.kubeconfig
        self._command = (str(bed.places.state / "bin/kubectl"), "--kubeconfig", str(self.kubeconfig))

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return _run(self.command(*arguments), stdin)

    def command(self, *arguments: str) -> list[str]:
        """For one who starts it and reads along."""
        return [*self._command, *arguments]

    def apply(self, manifests: str) -> None:
        """Server-side, as the one who owns what is said."""
        self("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=manifests)

    def issuer(self) -> str:
        """What its tokens say they come from."""
        return str(json.loads(self("get", "--raw", "/.well-known/openid-configuration"))["issuer"])

    def keys(self) -> bytes:
        """Its public keys, for red-box."""
        return self("get", "--raw", "/openid/v1/jwks").encode()


def _run(command: Sequence[str], stdin: str | None = None) -> str:
    return run_command(command, f"`{' '.join(command)}` failed", stdin=stdin, timeout=ENDS_WITHIN_S)
