"""The operator is killed, and away, at each step from five manifests to a job."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.delivery import NAMESPACE as OPERATOR_NAMESPACE
from tests.e2e.harness.hosted_examples import are_ready, hosted_examples, is_accounted
from tests.e2e.harness.hosted_slurm import NAMESPACE, OPERATOR, HostedSlurm, hosting
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
KEYS = ("slurm-keys", "slurm-authority", "acct-database")


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def kubernetes(bed: Bed, request: pytest.FixtureRequest) -> Iterator[Kubernetes]:
    with hosting(bed, request.param, database=True) as kubernetes:
        yield kubernetes


def killed(kubernetes: Kubernetes, bodies: list[Object]) -> None:
    """In the middle of what it makes of them."""
    for body in bodies:
        kubernetes.apply(json.dumps(body))
    (pod,) = kubernetes.list("pod", OPERATOR_NAMESPACE, labels=OPERATOR)
    name = pod["metadata"]["name"]
    kubernetes.delete("pod", name, namespace=OPERATOR_NAMESPACE, gracePeriodSeconds=0)
    runs(kubernetes, 1)


def away(kubernetes: Kubernetes, bodies: list[Object]) -> None:
    scale(kubernetes, 0)
    for body in bodies:
        kubernetes.apply(json.dumps(body))
    scale(kubernetes, 1)


def scale(kubernetes: Kubernetes, replicas: int) -> None:
    change = {"spec": {"replicas": replicas}}
    kubernetes.patch("deployment", "redbox-hosting", change, OPERATOR_NAMESPACE)
    runs(kubernetes, replicas)


def runs(kubernetes: Kubernetes, replicas: int) -> None:
    eventually(
        lambda: len(kubernetes.list("pod", OPERATOR_NAMESPACE, labels=OPERATOR)) == replicas,
        what=f"{replicas} operators",
    )


@pytest.mark.parametrize("interrupt", [killed, away])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_an_operator_that_comes_back_makes_one_cluster(
    bed: Bed, kubernetes: Kubernetes, interrupt: object, *, is_reversed: bool
) -> None:
    def uids() -> list[object]:
        found = [kubernetes.get("secret", each, NAMESPACE) for each in KEYS]
        return [each.get("metadata", {}).get("uid") for each in found]

    with hosted_examples(bed, kubernetes) as files:
        for bodies in reversed(files) if is_reversed else files:
            interrupt(kubernetes, bodies)  # type: ignore[operator]
        eventually(lambda: all(uids()), what="keys and passwords")
        made, slurm = uids(), HostedSlurm(kubernetes)
        are_ready(slurm)
        job = slurm.submit("true")
        slurm.reaches(job, "COMPLETED")
        is_accounted(slurm, job)
        assert uids() == made
