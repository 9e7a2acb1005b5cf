"""Clusters that are partly outside of Kubernetes: slurmctld, or nodes. The outside are the bed's hosts."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from redbox_bed.hosts.host import Daemon, Host
from tests.e2e.harness.hosted_slurm import (
    CLUSTER,
    NAMESPACE,
    SLURMCTLD,
    VERSION,
    WORKER_LIMITS,
    WORKERS,
    HostedSlurm,
    applied_slurm,
    hosting,
)
from tests.e2e.harness.kubernetes import Kubernetes, Object
from tests.e2e.harness.network_policies import enforced
from tests.e2e.harness.outside_slurm import CLUSTER as OUTSIDE
from tests.e2e.harness.outside_slurm import PORT, OutsideSlurm, outside_slurm
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
PAGE = Path(__file__).parents[3] / "docs/administrators/moving-from-slinky.md"
KEYS = "site-keys"
SLURMD, NODE, SLURMD_FOLDER = "outside-slurmd", "out-0", "/tmp/outside-slurmd"
HOSTS = "/etc/hosts"
UNTIL_RELEASED = "until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done"


@pytest.fixture(scope="module")
def kubernetes(bed: Bed) -> Iterator[Kubernetes]:
    """The hosts of the bed have 24.11, and a slurmd is no newer than its slurmctld. Policies are enforced."""
    with hosting(bed, "24.11") as kubernetes, enforced(bed, kubernetes):
        yield kubernetes


def controller(outside: OutsideSlurm, *, munge: bool) -> Object:
    address = {"host": outside.address, "port": PORT}
    keys: Object = {"jwtKeyRef": {"name": KEYS, "key": "jwt.key"}}
    redbox: Object = {"outsideAddresses": [f"{outside.address}/32"]}
    if munge:
        redbox["munge"] = {"keyRef": {"name": KEYS, "key": "munge.key"}}
    else:
        keys["slurmKeyRef"] = {"name": KEYS, "key": "slurm.key"}
    spec = {"clusterName": OUTSIDE, "external": True, "externalConfig": address, **keys, "redbox": redbox}
    return made("Controller", CLUSTER, spec)


def made(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def node_set(replicas: int) -> Object:
    spec = {
        "controllerRef": {"name": CLUSTER},
        "replicas": replicas,
        "oversubscribeNode": True,
        "slurmd": {"resources": {"limits": WORKER_LIMITS}},
    }
    return made("NodeSet", WORKERS, spec)


def secret(outside: OutsideSlurm) -> Object:
    data = {name: base64.b64encode(key).decode() for name, key in outside.keys.items()}
    metadata = {"name": KEYS, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


@pytest.mark.parametrize("auth", ["slurm", "munge"])
def test_workers_of_a_slurmctld_outside_run_its_jobs_and_go_after_them(
    bed: Bed, kubernetes: Kubernetes, auth: str
) -> None:
    munge = auth == "munge"
    with outside_slurm(bed, munge=munge) as outside:
        for each in (secret(outside), controller(outside, munge=munge), node_set(2)):
            kubernetes.apply(json.dumps(each))
        slurm = HostedSlurm(kubernetes)
        try:
            eventually(slurm.is_ready, what="an answer of the slurmctld outside")
            slurm.has_idle(2)
            hosts = outside.run("srun", "--nodes=2", "--chdir=/tmp", "hostname").split()
            assert sorted(hosts) == [f"{WORKERS}-0", f"{WORKERS}-1"]
            job = outside.run(
                *("sbatch", "--parsable", "--chdir=/tmp", "--output=/tmp/%j", f"--wrap={UNTIL_RELEASED}")
            )
            eventually(lambda: outside.job(job)["JobState"] == "RUNNING", what="the job to run")
            busy = outside.job(job)["NodeList"]
            slurm.scale(0)
            eventually(lambda: list(slurm.workers()) == [busy], what="the end of the idle worker")
            assert outside.job(job)["JobState"] == "RUNNING"
            slurm.run("touch", f"/tmp/go-{job}", pod=busy)
            eventually(lambda: not slurm.workers(), what="the end of the last worker")
            assert outside.job(job)["JobState"] == "COMPLETED"
            eventually(lambda: WORKERS not in outside.run("sinfo", "--noheader", "--Node"))
        finally:
            kubernetes.delete("nodesets.slurm.redbox.dev", WORKERS, namespace=NAMESPACE)
            kubernetes.delete("controllers.slurm.redbox.dev", CLUSTER, namespace=NAMESPACE)
            kubernetes.delete("secret", KEYS, namespace=NAMESPACE)


def test_a_host_outside_is_a_node_of_a_cluster_in_kubernetes(bed: Bed, kubernetes: Kubernetes) -> None:
    host = bed.host(bed.plan.of_role(Role.LOGIN)[0].name)
    outside: Object = {
        "extraConf": f"NodeSet=outside Feature=outside\nPartitionName=both Nodes={WORKERS},outside\n",
        "redbox": {"maxNodes": 64, "outsideAddresses": [f"{host.spec.address}/32"]},
    }
    with applied_slurm(bed, kubernetes, 1, WORKER_LIMITS, outside) as slurm:
        slurm.has_idle(1)
        with slurmd_outside(kubernetes, host):
            eventually(lambda: "IDLE" in slurm.node(NODE).get("State", ""), what="the node outside")
            both = slurm.run("srun", "--nodes=2", "--partition=both", "--chdir=/tmp", "hostname")
            assert sorted(both.split()) == sorted([f"{WORKERS}-0", host.name])
            # A node that is no worker of ours is left alone.
            slurm.scale(0)
            eventually(lambda: not slurm.workers(), what="the end of the worker")
            assert "IDLE" in slurm.node(NODE)["State"]
            slurm.run("scontrol", "delete", f"nodename={NODE}")


def test_accounts_of_a_cluster_are_copied_as_the_page_for_movers_says(bed: Bed) -> None:
    """By the bed's slurmdbd, to which the new cluster has not reported yet."""
    host = bed.host(bed.plan.of_role(Role.CONTROLLER)[0].name)
    old, new, file = bed.plan.clusters[0].name, "moved", "/tmp/accounts.cfg"
    commands = shell_blocks(PAGE.read_text(), "sacctmgr")
    assert len(commands) == 2
    try:
        for command in commands:
            words = command.replace("OLD-CLUSTER", old).replace("NEW-CLUSTER", new)
            host.run(*words.replace("accounts.cfg", file).split(), "--immediate")
        users = {cluster: associations(host, cluster) for cluster in (old, new)}
        assert users[old] == users[new] != []
    finally:
        host.run("sacctmgr", "--immediate", "delete", "cluster", new, check=False)
        host.run("rm", "-f", file)


def shell_blocks(page: str, beginning: str) -> list[str]:
    """Lines of the page's commands that begin so."""
    return [line.strip() for line in page.splitlines() if line.strip().startswith(f"{beginning} ")]


def associations(host: Host, cluster: str) -> list[str]:
    query = ("list", "associations", f"cluster={cluster}", "format=account,user,qos")
    return sorted(host.run("sacctmgr", "--noheader", "--parsable2", *query).stdout.splitlines())


@contextmanager
def slurmd_outside(kubernetes: Kubernetes, host: Host) -> Iterator[None]:
    """On a login host, which has no slurmd; as the page says."""
    keys = kubernetes.get("secret", f"{CLUSTER}-keys", NAMESPACE)["data"]
    address = kubernetes.get("pod", SLURMCTLD, NAMESPACE)["status"]["podIP"]
    host.run("install", "-d", SLURMD_FOLDER, "/run/slurm", "/var/spool/slurmd")
    host.write(f"{SLURMD_FOLDER}/slurm.jwks", base64.b64decode(keys["slurm.jwks"]), mode=0o400)
    before = host.read(HOSTS)
    names = f"{CLUSTER}-slurmctld.{NAMESPACE} {SLURMCTLD}.{CLUSTER}-controller.{NAMESPACE} {SLURMCTLD}"
    host.write(HOSTS, before + f"{address} {names}\n".encode())
    options = ("-Z", "-N", NODE, "--conf-server", f"{address}:6817", "--conf", "Feature=outside")
    key = {"SLURM_SACK_JWKS": f"{SLURMD_FOLDER}/slurm.jwks"}
    host.ensure(Daemon(SLURMD, ("/usr/sbin/slurmd", "-D", *options), env=key))
    try:
        yield
    finally:
        host.kill(SLURMD)
        host.write(HOSTS, before)
        host.run("rm", "-rf", SLURMD_FOLDER)
