"""Two clusters of two tenants in one Kubernetes: neither has the other's keys, tokens or connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_slurm import (
    CLUSTER,
    NAMESPACE,
    SLURMCTLD,
    VERSION,
    WORKER_LIMITS,
    WORKERS,
    hosting,
    upgrade,
)
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.network_policies import enforced
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
OTHER = "other-hpc"
REFUSED = ("401", "511")
"""By slurmrestd: by itself, or as slurmctld does not take the token."""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"
ASK = """\
import ssl, sys, urllib.request, urllib.error
request = urllib.request.Request(sys.argv[1], headers={"X-SLURM-USER-TOKEN": sys.stdin.read()})
try:
    print(urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
PORTS = {"slurmctld": (6817, 6821), "slurmd": (6818,), "control": (6822,)}


@dataclass(frozen=True)
class Tenant:
    """A cluster with the names that the other one has, too."""

    kubernetes: Kubernetes
    namespace: str

    def run(self, *command: str, pod: str = SLURMCTLD, stdin: str | None = None) -> str:
        interactive = ("--stdin",) if stdin is not None else ()
        words = ("exec", *interactive, f"--namespace={self.namespace}", pod, "--", *command)
        return self.kubernetes(*words, stdin=stdin).strip()

    def apply(self) -> None:
        for kind, name, spec in (
            (
                "Controller",
                CLUSTER,
                {
                    "persistence": {"enabled": False},
                    "redbox": {
                        "maxNodes": 8,
                        "partitions": [{"name": "all", "default": True}],
                        "tokens": {"users": ["nobody"]},
                    },
                },
            ),
            (
                "NodeSet",
                WORKERS,
                {
                    "controllerRef": {"name": CLUSTER},
                    "replicas": 1,
                    "oversubscribeNode": True,
                    "slurmd": {"resources": {"limits": WORKER_LIMITS}},
                },
            ),
            ("RestApi", "api", {"controllerRef": {"name": CLUSTER}}),
            ("Token", "nobody", {"username": "nobody"}),
        ):
            metadata = {"name": name, "namespace": self.namespace}
            body = {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}
            self.kubernetes.apply(json.dumps(body))

    def delete(self) -> None:
        for kind, name in (("nodeset", WORKERS), ("controller", CLUSTER), ("restapi", "api")):
            self.kubernetes.delete(f"{kind}s.slurm.redbox.dev", name, namespace=self.namespace)

    def is_idle(self) -> bool:
        status = self.kubernetes.get("nodesets.slurm.redbox.dev", WORKERS, self.namespace).get("status", {})
        token = self.kubernetes.get("secret", "nobody-jwt-nobody", self.namespace)
        api = self.kubernetes.get("deployment", "api-restapi", self.namespace).get("status", {})
        return bool(status.get("slurmIdle") == 1 and token and api.get("readyReplicas"))

    def secret(self, name: str) -> Object:
        return dict(self.kubernetes.get("secret", name, self.namespace)["data"])

    @property
    def token(self) -> str:
        template = '--template={{index .data "SLURM_JWT" | base64decode}}'
        return self.kubernetes(
            "get", "secret", "nobody-jwt-nobody", f"--namespace={self.namespace}", template
        ).strip()

    def rest_status(self, token: str) -> str:
        """Of a request to this tenant's RestApi, from a pod of its own."""
        url = f"https://api-restapi.{self.namespace}.svc:6820/slurm/v0.0.42/nodes/"
        return self.run("python3", "-c", ASK, url, stdin=token)

    def nodes_of(self, namespace: str) -> str:
        """What the slurmctld there answers to this tenant, who has its configuration."""
        change = f"sed s/{self.namespace}/{namespace}/g /etc/slurm/slurm.conf >/tmp/slurm.conf"
        ask = "SLURM_CONF=/tmp/slurm.conf timeout 20 sinfo --noheader --Node --format=%N"
        return self.run("sh", "-c", f"{change} && {ask}")

    def connects(self, other: Tenant, role: str, port: int) -> bool:
        """What a policy refuses gets no answer at all."""
        labels = f"slurm.redbox.dev/role={role}"
        (pod,) = self.kubernetes.list("pod", other.namespace, labels=labels)
        try:
            self.run("python3", "-c", CONNECT, pod["status"]["podIP"], str(port), pod=f"{WORKERS}-0")
        except BedError as error:
            return "timed out" not in str(error)
        return True


@pytest.fixture(scope="module")
def tenants(bed: Bed) -> Iterator[tuple[Tenant, Tenant]]:
    with hosting(bed, "26.05") as kubernetes:
        enforce = {"pod-security.kubernetes.io/enforce": "baseline"}
        other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER, "labels": enforce}}
        kubernetes.apply(json.dumps(other))
        upgrade(bed, {"namespaces": [NAMESPACE, OTHER]})
        both = Tenant(kubernetes, NAMESPACE), Tenant(kubernetes, OTHER)
        try:
            for each in both:
                each.apply()
            for each in both:
                eventually(each.is_idle, what=f"the cluster in {each.namespace}")
            yield both
        finally:
            for each in both:
                each.delete()
            kubernetes.delete("namespace", OTHER, wait=False)


def test_neither_has_keys_or_tokens_that_the_other_takes(tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    assert first.secret(f"{CLUSTER}-keys") != second.secret(f"{CLUSTER}-keys")
    assert first.secret(f"{CLUSTER}-authority")["ca.crt"] != second.secret(f"{CLUSTER}-authority")["ca.crt"]
    for mine, theirs in ((first, second), (second, first)):
        assert mine.nodes_of(mine.namespace) == f"{WORKERS}-0"
        with pytest.raises(BedError, match="sinfo"):
            mine.nodes_of(theirs.namespace)
        assert mine.rest_status(mine.token) == "200"
        assert mine.rest_status(theirs.token) in REFUSED


def test_neither_connects_to_the_others_daemons(bed: Bed, tenants: tuple[Tenant, Tenant]) -> None:
    first, second = tenants
    with enforced(bed, first.kubernetes):
        for mine, theirs in ((first, second), (second, first)):
            assert mine.connects(mine, "slurmctld", 6817)
            reached = [
                (role, port)
                for role, ports in PORTS.items()
                for port in ports
                if mine.connects(theirs, role, port)
            ]
            assert reached == []
