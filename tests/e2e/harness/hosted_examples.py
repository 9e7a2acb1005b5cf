"""The manifests of examples/hosted in the bed, as docs/administrators/hosted-slurm.md applies them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from tests.e2e.harness.hosted_slurm import NAMESPACE, HostedSlurm, cancel_jobs
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.volumes import volume_of
from tests.e2e.harness.waiting import eventually

EXAMPLES = CHECKOUT / "examples/hosted"
STORAGE = f"{NAMESPACE}-examples"
KINDS = ("tokens", "restapis", "loginsets", "nodesets", "accountings", "controllers")
READY = (
    ("accounting", "acct"),
    ("controller", "slurm"),
    ("nodeset", "cpu"),
    ("restapi", "api"),
    ("loginset", "login"),
)


@contextmanager
def hosted_examples(bed: Bed, kubernetes: Kubernetes) -> Iterator[list[list[Object]]]:
    """The objects of each file in the alphabet's order; at the end they are deleted, and their volumes."""
    volumes = [f"{STORAGE}-{each}" for each in ("state", "data")]
    for volume in volumes:
        volume_of(bed, volume, storageClassName=STORAGE, capacity={"storage": "16Gi"})
    try:
        yield [
            [_for_the_bed(body) for body in yaml.safe_load_all(file.read_text())]
            for file in sorted(EXAMPLES.glob("*.yaml"))
        ]
    finally:
        cancel_jobs(kubernetes)
        for kind in KINDS:
            for body in kubernetes.list(f"{kind}.slurm.redbox.dev", NAMESPACE):
                kubernetes.delete(f"{kind}.slurm.redbox.dev", body["metadata"]["name"], namespace=NAMESPACE)
        for claim in kubernetes.list("persistentvolumeclaim", NAMESPACE):
            kubernetes.delete("persistentvolumeclaim", claim["metadata"]["name"], namespace=NAMESPACE)
        kubernetes.delete("persistentvolume", *volumes)


def _for_the_bed(body: Object) -> Object:
    """It has no default StorageClass, and few cores."""
    if body["kind"] == "Controller":
        body["spec"]["persistence"] = {"storageClassName": STORAGE}
    if body["kind"] == "Accounting":
        body["spec"]["redbox"]["database"]["storageClassName"] = STORAGE
    if body["kind"] == "NodeSet":
        body["spec"]["slurmd"]["resources"]["limits"] = {"cpu": "100m", "memory": "512Mi"}
    if body["kind"] == "LoginSet":
        body["spec"]["login"]["resources"]["limits"] = {"cpu": "100m", "memory": "256Mi"}
    body["metadata"]["namespace"] = NAMESPACE
    return body


def are_ready(slurm: HostedSlurm) -> None:
    for kind, name in READY:
        eventually(
            lambda kind=kind, name=name: slurm.condition(kind, name, "Ready")[0] == "True",  # type: ignore[misc]
            what=f"Ready of {kind} {name}",
        )
    slurm.has_idle(2)


def is_accounted(slurm: HostedSlurm, job: str) -> None:
    sacct = ("sacct", "--allusers", "--noheader", "--parsable2", "--format=State", f"--jobs={job}", "-X")
    eventually(lambda: slurm.run(*sacct) == "COMPLETED", what=f"job {job} in the accounting")
