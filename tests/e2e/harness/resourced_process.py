"""What resourced needs on the bed: the chart's rights for it, a red-box of the tests' own, a SlurmCluster."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.plan import SERVICE_PORT
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import CHART, NAMESPACE, RELEASE
from redbox_bed.kube.existing import link_program
from redbox_bed.programs.helm import ensure_helm
from redbox_operator.api.crds import all_crds
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_server import AUDIENCE, PlayedCluster, RedboxServer, running

NAME = "redbox-resourced"
CLUSTER = "hpc1"
TEMPLATES = ("resourced-rbac", "admission-nodes", "admission-leases", "admission-tokens")
OF_PODS = ("admission-pods", "admission-slices", "admission-volumes", "storage")


@dataclass(frozen=True)
class RealCluster(PlayedCluster):
    """The bed's own Kubernetes, as red-box knows it."""

    keys: bytes = b""

    def public_keys(self) -> bytes:
        return self.keys


@contextmanager
def redbox_of(
    bed: Bed, kubernetes: Kubernetes, jobs: Mapping[str, float] | None = None
) -> Iterator[RedboxServer]:
    """A red-box that takes resourced's tokens for what they are; `jobs` is that section of its settings."""
    cluster = {
        "name": "bed",
        "issuer": kubernetes.issuer(),
        "audience": AUDIENCE,
        "jwks_file": "/var/lib/redbox/e2e-resourced/played.jwks.json",
    }
    reader = {"cluster": "bed", "namespaces": [NAMESPACE], "service_accounts": [NAME], "roles": ["reader"]}
    sections: dict[str, dict[str, Any]] = {
        "callers": {"clusters": [cluster]},
        "mapping": {"rules": [reader]},
        "jobs": dict(jobs or {}),
    }
    real = RealCluster(keys=kubernetes.keys())
    with running(bed, name="resourced", sections=sections, cluster=real) as server:
        yield server


def slurm_cluster(server: RedboxServer, name: str = CLUSTER, **spec: Any) -> str:
    """A SlurmCluster of that red-box."""
    given = {
        "endpoint": f"https://{server.login.spec.address}:{SERVICE_PORT}",
        "caBundle": base64.b64encode(server.authority.certificate).decode(),
        "audience": AUDIENCE,
        **spec,
    }
    kind = {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmCluster"}
    return json.dumps({**kind, "metadata": {"name": name}, "spec": given})


def install(bed: Bed, kubernetes: Kubernetes, *, pods: bool = False) -> None:
    """What the chart makes for resourced, but for its Deployment; with `pods`, for those too."""
    crds = [crd for crd in all_crds() if crd["spec"]["names"]["kind"] == "SlurmCluster"]
    kubernetes.apply(yaml.safe_dump_all(crds))
    kubernetes("wait", "--for=condition=Established", "crd/slurmclusters.redbox.dev")
    kubernetes.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
    kubernetes.apply(rendered(bed, pods=pods))


def rendered(bed: Bed, *, pods: bool = False) -> str:
    """The chart's templates for resourced's account, rights and policies."""
    link_program(bed.places, ensure_helm(bed.places, Progress.silent()))
    command = [
        *(str(bed.places.state / "bin/helm"), "template", RELEASE, str(CHART), f"--namespace={NAMESPACE}"),
        *("--set=resourced.enabled=true", "--set=images.registry=none"),
        f"--set=resourced.pods.enabled={str(pods).lower()}",
        *(f"--show-only=templates/{name}.yaml" for name in (*TEMPLATES, *(OF_PODS if pods else ()))),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def remove_all(kubernetes: Kubernetes, clusters: Sequence[str]) -> None:
    """What the tests made in Kubernetes."""
    kubernetes.delete("slurmcluster", *clusters, wait=False)
    kubernetes.delete("node", *virtual_nodes(kubernetes))


def virtual_nodes(kubernetes: Kubernetes) -> list[str]:
    """Their names."""
    return [node["metadata"]["name"] for node in kubernetes.list("nodes", labels="redbox.dev/virtual")]
