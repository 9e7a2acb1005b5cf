"""The chart's NetworkPolicies where something enforces them: who reaches each of our pods, who does not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.delivery import NAMESPACE
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.network_policies import clients, enforced
from tests.e2e.harness.redbox_in_pod import NAME, OBJECT, POD, RedboxInPod, redbox_in_pod
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, new_name
from tests.e2e.harness.waiting import eventually

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("NETWORK_POLICIES"), reason="NETWORK_POLICIES=1 builds and runs what enforces them"
    ),
]
METRICS, KUBELET, REDBOX = 8080, 10250, 8443
HERE = (f"--namespace={NAMESPACE}",)
CONNECTS = """\
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
except TimeoutError:
    print("refused")
"""


@pytest.fixture
def site(bed: Bed) -> Iterator[RedboxInPod]:
    """Operator, resourced and a red-box, as pods."""
    SlurmJobs.on(bed)
    with redbox_in_pod(bed) as site:
        yield site


def address_of(kubectl: Kubernetes, name: str) -> str:
    """Of its pod, once it is ready."""
    labels = f"app.kubernetes.io/name={name}"
    kubectl("wait", "pod", f"--selector={labels}", *HERE, "--for=condition=Ready", "--timeout=110s")
    pods = kubectl.list("pods", NAMESPACE, labels=labels)
    (pod,) = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return str(pod["status"]["podIP"])


def test_each_pod_of_ours_is_reached_by_those_that_its_policy_names_and_by_no_others(
    bed: Bed, site: RedboxInPod
) -> None:
    kubectl, inside = site.kubectl, new_name()
    source = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": inside}}}]
    site.install(f"--set-json=networkPolicy.metricsFrom={json.dumps(source)}")
    operator, resourced, redbox = (
        address_of(kubectl, name) for name in ("redbox-operator", "redbox-resourced", OBJECT)
    )
    with clients(bed, kubectl, inside) as named, clients(bed, kubectl, new_name()) as others:
        assert all(others.connect(operator, METRICS)), "without enforcement all are reached"
        with enforced(bed, kubectl):
            eventually(lambda: not any(others.connect(operator, METRICS)), what="their enforcement")
            reached = {
                (address, port): (all(named.connect(address, port)), any(others.connect(address, port)))
                for address, port in [
                    (operator, METRICS),
                    (resourced, METRICS),
                    (resourced, KUBELET),
                    (redbox, REDBOX),
                    (redbox, METRICS),
                ]
            }
            assert reached == {
                (operator, METRICS): (True, False),
                (resourced, METRICS): (True, False),
                (resourced, KUBELET): (True, True),
                (redbox, REDBOX): (True, True),
                (redbox, METRICS): (False, False),
            }
            # Of what it reaches, its policy has neither: everybody else gets a connection there.
            assert from_redbox(kubectl, resourced, KUBELET) == "refused"


def from_redbox(kubectl: Kubernetes, address: str, port: int) -> str:
    return kubectl("exec", POD, *HERE, "--container=redbox", "--", *connecting(address, port)).strip()


def connecting(address: str, port: int) -> tuple[str, ...]:
    return ("python3", "-c", CONNECTS, address, str(port))


def test_a_companion_reaches_its_red_box_and_no_other_pod(
    bed: Bed, site: RedboxInPod, jobs: SlurmJobs
) -> None:
    here = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    redboxes = [
        {"namespaceSelector": here, "podSelector": {"matchLabels": {"app.kubernetes.io/name": OBJECT}}}
    ]
    limited = {"namespaces": ["alice"], "redboxes": redboxes}
    site.install(f"--set-json=networkPolicy.companions={json.dumps(limited)}")
    resourced, redbox = (address_of(site.kubectl, name) for name in ("redbox-resourced", OBJECT))
    free = jobs.apply("sleep 600", cluster=NAME, namespace="bob")
    free.starts()
    with enforced(bed, site.kubectl):
        job = jobs.apply("echo seen; sleep 600", cluster=NAME)
        job.starts()
        job.has_a_log()

        def reached(applied: Applied, address: str, port: int) -> str:
            return applied("exec", applied.pod, "--", *connecting(address, port)).strip()

        eventually(lambda: reached(job, resourced, KUBELET) == "refused", what="its enforcement")
        assert reached(job, redbox, REDBOX) == ""
        assert reached(free, resourced, KUBELET) == "", "another namespace's companion is not limited"
