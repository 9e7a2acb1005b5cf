"""Clusters that are partly outside of Kubernetes: munged in workers, and whom NetworkPolicies let in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.pods.network import network_policies
from redbox_hosting.build.pods.pod_security import BeyondPlain, beyond_plain, places_of
from redbox_hosting.build.pods.worker import WorkerPlan, worker_pod
from redbox_slurmpod.cli import _parser
from tests.hosting.factories import cell, node_set
from tests.hosting.snapshots import check

SNAPSHOTS = Path(__file__).with_name("snapshots")
MUNGE = {
    "external": True,
    "externalConfig": {"host": "ctl.example.org", "port": 6817},
    "jwtKeyRef": {"name": "site", "key": "jwt.key"},
    "redbox": {"munge": {"keyRef": {"name": "site", "key": "munge"}}},
}
OUTSIDE = {"redbox": {"outsideAddresses": ["10.1.0.0/16", "fd00::/64"]}}


def worker(release: SlurmRelease = SlurmRelease.R26_05, **spec: Any) -> dict[str, Any]:
    return worker_pod(cell(MUNGE, release=release), WorkerPlan(node_set(**spec), 0, "rev1"))


OBJECTS: dict[str, Any] = {
    "worker-munge": worker(),
    "worker-munge-24.11": worker(SlurmRelease.R24_11),
    "network-policies-outside": network_policies(
        cell(OUTSIDE), {"namespace": "redbox-system", "name": "redbox-hosting"}
    ),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects(name: str) -> None:
    check(SNAPSHOTS / f"{name}.yaml", yaml.safe_dump(OBJECTS[name], sort_keys=False))


def test_hosts_outside_reach_slurm_and_neither_control_nor_the_database() -> None:
    open_to = {
        policy["metadata"]["name"]
        for policy in OBJECTS["network-policies-outside"]
        if any("ipBlock" in peer for rule in policy["spec"]["ingress"] for peer in rule.get("from", []))
    }
    assert open_to == {"slurm-slurmctld", "slurm-slurmd", "slurm-login"}


def test_no_container_but_munged_has_the_sites_key_and_no_job_replaces_its_socket() -> None:
    pod = worker()["spec"]
    (slurmd,), (munged,) = pod["containers"], pod["initContainers"]
    assert munged["restartPolicy"] == "Always", "it is ended after slurmd"
    mounts = {each["name"]: each for each in slurmd["volumeMounts"]}
    assert mounts["munge"] == {"name": "munge", "mountPath": "/run/munge", "readOnly": True}
    assert not {"munge-key", "munge-run", "keys"} & mounts.keys()
    volumes = ("munge", "munge-key", "munge-run")
    spy = {"name": "spy", "image": "x", "volumeMounts": [{"name": v, "mountPath": f"/{v}"} for v in volumes]}
    with pytest.raises(BeyondPlain, match=r"munge, .*munge-key, .*munge-run"):
        worker(template={"spec": {"containers": [spy]}})
    assert beyond_plain("slurmd", pod, places_of(pod)) == []


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("name", ["munged", "sack", "x"])
def test_no_name_makes_a_users_container_one_of_the_operators(kind: str, name: str) -> None:
    """Without munge no container of the operator's is called munged."""
    spy = {"name": name, "image": "x", "volumeMounts": [{"name": "keys", "mountPath": "/keys"}]}
    node_set_of_a_user = node_set(template={"spec": {kind: [spy]}})
    with pytest.raises(BeyondPlain, match=rf"{kind}\[{name}\].volumeMounts keys"):
        worker_pod(cell(), WorkerPlan(node_set_of_a_user, 0, "rev1"))


def test_munged_has_arguments_that_its_role_takes() -> None:
    (munged,) = worker()["spec"]["initContainers"]
    assert str(_parser().parse_args(munged["args"]).socket).endswith("/munge.socket.2")
