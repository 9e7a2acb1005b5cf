"""A kubelet whose one pod is a running job of Slurm: what kubectl does with it, without Red Box.

It is the Go program in stubs/kubelet, whose streams Kubernetes' own code serves. It runs on the login host as
the job's user, with a certificate of the bed's authority, as a Node of its own; srun is its relay.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redbox_bed.bed import Bed
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Daemon, Host
from redbox_bed.kube.conf import KUBELET_ADMINISTRATORS
from redbox_bed.kube.pki import Identity, ensure_pki
from redbox_bed.programs.golang import Program, ensure_program
from tests.bench.bench_slurm import USER
from tests.bench.kubectl import Kubectl, KubectlError, pod

MODULE = Path(__file__).parent / "stubs/kubelet"
NAME = "bench-kubelet"
"""Of the program, its daemon, its certificate, its Node and its pod."""
PORT = 10350
FOLDER = f"/run/{NAME}"
AUTHORITY = "kubernetes"
SERVES_WITHIN_S = 30


@contextmanager
def stub_kubelet(bed: Bed, kubectl: Kubectl, *, job_id: str, log: str) -> Iterator[str]:
    """The name of its pod, in kubectl's namespace: the log is that file, commands are steps of that job."""
    login = bed.host("login")
    address = bed.plan.host("login").address
    _remove(login, kubectl)  # of a run that was killed
    _install(bed, login, address)
    try:
        login.ensure(Daemon(NAME, words(address, job_id, log), user=USER))
        kubectl.apply(node(address))
        kubectl.apply(pod(NAME, "", nodeName=NAME, tolerations=[{"operator": "Exists"}]))
        running = json.dumps({"status": {"phase": "Running"}})
        kubectl.run("patch", "pod", NAME, "--subresource=status", f"--patch={running}")
        _wait_until_it_serves(login, kubectl)
        yield NAME
    finally:
        _remove(login, kubectl)


def words(address: str, job_id: str, log: str) -> tuple[str, ...]:
    """Its command; the relay is the step that carries a session of Red Box, with nothing of ours in it."""
    options = (f"-address={address}", f"-port={PORT}", f"-folder={FOLDER}", f"-log={log}")
    relay = ("srun", "-Q", "-u", "-N1", "-n1", "--overlap", f"--jobid={job_id}")
    return (f"{FOLDER}/kubelet", *options, f"-administrators={KUBELET_ADMINISTRATORS}", "--", *relay)


def node(address: str) -> dict[str, Any]:
    """The API server reaches it there; nothing is scheduled to it."""
    taint = {"key": "redbox.dev/bench", "effect": "NoSchedule"}
    status = {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
    }
    metadata = {"name": NAME}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"taints": [taint]},
        "status": status,
    }


def _install(bed: Bed, login: Host, address: str) -> None:
    program = ensure_program(Program(NAME, MODULE, "some 300"), bed.places, Progress.silent())
    keys = bed.places.state / "kube/pki"
    if not (keys / f"{AUTHORITY}-ca.key").exists():
        raise RuntimeError(
            "a stub kubelet needs a certificate of the bed's own Kubernetes, which is not here"
        )
    node_name = f"system:node:{NAME}"
    identity = Identity(
        NAME, AUTHORITY, node_name, organization="system:nodes", addresses=(address,), usages=("server",)
    )
    ensure_pki(keys, (AUTHORITY,), (identity,), dt.datetime.now(dt.UTC))
    owner = f"{USER}:"
    login.write(f"{FOLDER}/kubelet", program.read_bytes(), mode=0o755)
    login.write(f"{FOLDER}/ca.crt", (keys / f"{AUTHORITY}-ca.crt").read_bytes())
    login.write(f"{FOLDER}/tls.crt", (keys / f"{NAME}.crt").read_bytes())
    login.write(f"{FOLDER}/tls.key", (keys / f"{NAME}.key").read_bytes(), mode=0o600, owner=owner)


def _wait_until_it_serves(login: Host, kubectl: Kubectl) -> None:
    deadline = time.monotonic() + SERVES_WITHIN_S
    while problem := _problem(kubectl):
        if time.monotonic() > deadline or not login.running(NAME):
            said = login.log_path(NAME).read_text(errors="replace")[-500:]
            raise RuntimeError(f"the stub kubelet does not serve: {problem}; it wrote: {said}")
        time.sleep(0.2)


def _problem(kubectl: Kubectl) -> str:
    """Why the API server does not reach it; empty if it does."""
    try:
        kubectl.run("get", "--raw", f"/api/v1/nodes/{NAME}/proxy/healthz")
    except KubectlError as error:
        return str(error)
    return ""


def _remove(login: Host, kubectl: Kubectl) -> None:
    if login.running(NAME):
        login.kill(NAME)
    login.run("rm", "-rf", FOLDER)
    kubectl.delete_pod(NAME)
    kubectl.run("delete", "node", NAME, "--ignore-not-found")
