"""`kubectl top` by a real metrics-server, which gathers from virtual nodes as from every other.

It is built for this test alone, and gathers every fifteen seconds: `METRICS_SERVER=1` has it run.
"""

from __future__ import annotations

import os
import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.progress import Progress
from redbox_bed.programs.metrics_server import ensure_metrics_server
from tests.e2e.harness.client_certificate import signed
from tests.e2e.harness.virtual_delivery import HOST, Object, Stand, virtual_stand
from tests.e2e.harness.waiting import eventually

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("bare"),
    pytest.mark.skipif(not os.environ.get("METRICS_SERVER"), reason="METRICS_SERVER=1 builds and runs it"),
]
NAME = "e2e-metrics-server"
NAMESPACE = "kube-system"
GATHERER = "e2e-metrics-gatherer"
API_SERVICE = "v1beta1.metrics.k8s.io"
PORT = 14443
LOG = "metrics-server.log"
RBAC = "rbac.authorization.k8s.io"
HELD_MB = 150
HOLDS_AND_SPINS = f"#!/bin/sh\n(head -c {HELD_MB}000000 /dev/zero; while :; do :; done) | tail\n"
WITHIN_S = 180.0


def test_top_shows_what_slurm_measured_and_of_the_node_that_nothing_is_known(
    bed: Bed, tmp_path: Path
) -> None:
    program = ensure_metrics_server(bed.places, Progress.silent())
    with virtual_stand(bed, tmp_path) as stand, gathering(stand, program, tmp_path):
        companion = stand.submit(HOLDS_AND_SPINS)
        companion.reaches("Running")
        used = eventually(lambda: top_of_pod(stand, companion.pod_name), within_s=WITHIN_S)
        millicores, mebibytes = used
        assert 10 <= millicores <= 2500, "it spins on one processor"
        assert HELD_MB * 0.9 <= mebibytes <= HELD_MB * 2
        nodes = stand.kubernetes("top", "nodes", "--no-headers")
        assert re.search(r"^hpc1\.debug( +<unknown>)+ *$", nodes, re.MULTILINE)
        assert re.search(rf"^{HOST} +\d+m ", nodes, re.MULTILINE)
        assert "duplicate" not in (tmp_path / LOG).read_text(), "each node tells of its own pods alone"


def top_of_pod(stand: Stand, name: str) -> tuple[int, int] | None:
    """Its millicores and mebibytes, once there are some; the first are a rate, of two measurements."""
    command = [str(stand.bed.places.state / "bin/kubectl"), f"--kubeconfig={stand.bed.places.kubeconfig}"]
    asked = subprocess.run(
        [*command, "top", "pod", name, "--namespace=alice", "--no-headers"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    told = re.match(rf"{name} +(\d+)m +(\d+)Mi", asked.stdout)
    return (int(told[1]), int(told[2])) if told and told[1] != "0" else None


@contextmanager
def gathering(stand: Stand, program: Path, folder: Path) -> Iterator[None]:
    """metrics-server in the network of a node, and the API that it serves."""
    certificate = signed(stand.kubernetes, folder, GATHERER, ["e2e"])
    stand.kubernetes.apply(yaml.safe_dump_all(objects(stand.resourced.address)))
    config = kubeconfig(stand, folder)
    kubeconfigs = [f"--{of}kubeconfig={config}" for of in ("", "authentication-", "authorization-")]
    command = [
        *(*stand.resourced.entering(), str(program), f"--secure-port={PORT}", f"--cert-dir={folder}"),
        *(*kubeconfigs, f"--kubelet-certificate-authority={folder / 'ca.pem'}"),
        *(f"--kubelet-client-certificate={certificate.file}", f"--kubelet-client-key={certificate.key}"),
        *("--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP"),
        "--metric-resolution=15s",
    ]
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        stand.kubernetes("wait", "--for=condition=Available", f"apiservice/{API_SERVICE}", "--timeout=120s")
        yield
    except BaseException as error:
        error.add_note((folder / LOG).read_text(errors="replace")[-3000:])
        raise
    finally:
        process.terminate()
        process.wait(timeout=30)
        stand.kubernetes(
            *("delete", "--ignore-not-found", "--wait=false", "--filename=-"),
            stdin=yaml.safe_dump_all(objects(stand.resourced.address)),
        )


def kubeconfig(stand: Stand, folder: Path) -> Path:
    """As its own service account, from within the bed; and the cluster's CA beside it."""
    config = yaml.safe_load(stand.bed.places.kubeconfig.read_text())
    token = stand.kubernetes("create", "token", NAME, f"--namespace={NAMESPACE}").strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    config["clusters"][0]["cluster"]["server"] = f"https://{stand.bed.plan.host('k0').address}:6443"
    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    (folder / "ca.pem").write_bytes(b64decode(authority))
    path = folder / "metrics-server.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def objects(address: str) -> Iterator[Object]:
    """As metrics-server's own manifests have them, but for where it runs, and the gatherer's name."""
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    gatherer = {"kind": "User", "name": GATHERER, "apiGroup": RBAC}
    reader = "extension-apiserver-authentication-reader"
    yield made("v1", "ServiceAccount", NAMESPACE)
    yield made(
        f"{RBAC}/v1",
        "ClusterRole",
        rules=[
            {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
        ],
    )
    yield bound("ClusterRoleBinding", "ClusterRole", NAME, account, gatherer)
    yield bound("ClusterRoleBinding", "ClusterRole", "system:auth-delegator", account)
    yield bound("RoleBinding", "Role", reader, account)
    yield made("v1", "Service", NAMESPACE, spec={"ports": [{"port": 443, "targetPort": PORT}]})
    yield made(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        NAMESPACE,
        labels={"kubernetes.io/service-name": NAME},
        addressType="IPv4",
        endpoints=[{"addresses": [address], "conditions": {"ready": True}}],
        ports=[{"port": PORT, "protocol": "TCP"}],
    )
    version, _, group = API_SERVICE.partition(".")
    spec = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": NAME, "namespace": NAMESPACE, "port": 443},
    }
    yield made("apiregistration.k8s.io/v1", "APIService", name=API_SERVICE, spec=spec)


def made(
    api_version: str,
    kind: str,
    namespace: str = "",
    *,
    name: str = NAME,
    labels: Object | None = None,
    **rest: Any,
) -> Object:
    metadata = {"name": name, "labels": labels or {}} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def bound(kind: str, role_kind: str, role: str, *subjects: Object) -> Object:
    namespace = NAMESPACE if kind == "RoleBinding" else ""
    reference = {"apiGroup": RBAC, "kind": role_kind, "name": role}
    name = f"{NAME}-{role.replace(':', '-')}"
    return made(f"{RBAC}/v1", kind, namespace, name=name, roleRef=reference, subjects=list(subjects))
