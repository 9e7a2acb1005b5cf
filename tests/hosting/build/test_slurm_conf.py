"""Slurm's files, for inputs that matter."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from redbox_hosting.build.config.partitions import RemovedPartition
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.config.slurm_conf import (
    EPILOG,
    ClusterInputs,
    SlurmdbdAddress,
    are_of,
    client_conf,
    cluster_files,
)
from redbox_shared.hosted_settings.lines import ConfLine
from tests.hosting.factories import inputs, node_set
from tests.hosting.snapshots import check

SNAPSHOTS = Path(__file__).with_name("snapshots")
GPU = {"resources": {"limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "4"}}}
AMD = {"resources": {"limits": {"cpu": "8", "memory": "64Gi", "amd.com/gpu": 2}}}
SHARED = {"sharing": "Shared"}
OLD = ConfLine("PartitionName", "old", (("Nodes", "gone,w"), ("Default", "YES"), ("State", "UP")))


def partitions(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"redbox": {"partitions": list(rows)}}


CASES: dict[str, ClusterInputs] = {
    "plain": inputs(),
    "plain-24.11": inputs(release=SlurmRelease.R24_11),
    "privileged": inputs({"redbox": {"profile": "Privileged"}}),
    "no-node-sets": inputs(node_sets=()),
    "cluster-name": inputs({"clusterName": "lab"}),
    "two-node-sets": inputs(node_sets=(node_set("b"), node_set("a"))),
    "max-nodes": inputs({"redbox": {"maxNodes": 64}}),
    "accounting": inputs(accounting=SlurmdbdAddress("acct-accounting")),
    "accounting-outside": inputs(accounting=SlurmdbdAddress("dbd.example.org", 7819)),
    "metrics": inputs({"metrics": {"enabled": True}}),
    "metrics-24.11": inputs({"metrics": {"enabled": True}}, SlurmRelease.R24_11),
    "jwks": inputs({"jwksKeyRef": {"name": "idp", "key": "jwks"}}),
    "partition": inputs(partitions({"name": "all", "default": True})),
    "partition-full": inputs(
        partitions(
            {
                "name": "p",
                "nodeSets": ["w"],
                "maxTime": "2-00:00:00",
                "defaultTime": "60",
                "defMemPerCPU": 2048,
                "qos": "high",
                "allowAccounts": ["a", "b"],
                "allowGroups": ["g"],
            }
        )
    ),
    "partition-of-a-missing-node-set": inputs(partitions({"name": "p", "nodeSets": ["later"]})),
    "partition-shared": inputs(partitions({"name": "all"}), node_sets=(node_set(redbox=SHARED),)),
    "partition-mixed-sharing": inputs(
        partitions({"name": "all"}, {"name": "s", "nodeSets": ["s"]}),
        node_sets=(node_set(), node_set("s", redbox=SHARED)),
    ),
    "partition-of-a-node-set": inputs(
        node_sets=(node_set(partition={"enabled": True, "config": "MaxTime=1-0 Default=YES"}),)
    ),
    "partition-of-a-node-set-off": inputs(node_sets=(node_set(partition={"enabled": False}),)),
    "partition-in-extra-conf": inputs({"extraConf": "PartitionName=all Nodes=ALL Default=YES State=UP\n"}),
    "removed-partition-first-step": inputs(removed_partitions=(RemovedPartition(OLD),)),
    "removed-partition-without-jobs-not-draining": inputs(
        removed_partitions=(RemovedPartition(OLD, jobs=0),)
    ),
    "removed-partition-with-jobs": inputs(removed_partitions=(RemovedPartition(OLD, draining=True, jobs=1),)),
    "removed-partition-unknown": inputs(removed_partitions=(RemovedPartition(OLD, draining=True),)),
    "removed-partition-gone": inputs(removed_partitions=(RemovedPartition(OLD, draining=True, jobs=0),)),
    "extra-conf": inputs(
        {
            "extraConf": "# a comment\nPriorityType=priority/multifactor\n"
            "  schedulerparameters=bf_window=1440\n"
        }
    ),
    "extra-conf-licenses": inputs({"extraConf": "Licenses=matlab:2,comsol:1"}),
    "extra-conf-launch": inputs({"extraConf": "LaunchParameters=use_interactive_step"}),
    "extra-conf-node-set": inputs(
        {"extraConf": "NodeSet=big Feature=big\nPartitionName=big Nodes=big MaxNodes=2"}
    ),
    "nvidia": inputs(node_sets=(node_set("g", slurmd=GPU), node_set())),
    "amd": inputs(node_sets=(node_set("g", slurmd=AMD),)),
    "both-gpus": inputs(
        {"redbox": {"maxNodes": 100}},
        node_sets=(node_set("a", slurmd=AMD, ordinalPadding=3), node_set("n", slurmd=GPU)),
    ),
    "gres-of-the-user": inputs(config_files={"gres.conf": "NodeName=w-0 Name=gpu File=/dev/x\n"}),
    "shared-node-sets": inputs(
        node_sets=(
            node_set("a", redbox=SHARED),
            node_set("b", redbox=SHARED, template={"spec": {"hostname": "$(reboot) '"}}),
            node_set("c"),
        ),
    ),
    "epilog": inputs(scripts={"Epilog": {"epilog.sh": "#!/bin/sh\n"}}),
    "scripts": inputs(
        scripts={
            "Prolog": {"prolog-b.sh": "#!/bin/sh\n", "prolog-a.sh": "#!/bin/sh\nexit 0\n"},
            "EpilogSlurmctld": {"epilog.sh": "#!/bin/sh\n"},
        }
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_files(name: str) -> None:
    made = cluster_files(CASES[name])
    assert made.refused == ()
    text = "".join(f"--- {file}\n{content}" for file, content in made.files.items())
    check(SNAPSHOTS / f"{name}.txt", text)


def test_the_hash_changes_with_each_file_and_is_the_marker() -> None:
    made = {name: cluster_files(case) for name, case in CASES.items()}
    for files in made.values():
        assert f"redbox-config-{files.digest}:1" in files.files["slurm.conf"]
    assert made["scripts"].digest != made["plain"].digest
    assert made["extra-conf-licenses"].digest != made["plain"].digest
    first = inputs(scripts={"Prolog": {"p": "1"}})
    second = inputs(scripts={"Prolog": {"p": "2"}})
    assert cluster_files(first).digest != cluster_files(second).digest
    assert cluster_files(first) == cluster_files(first)


@pytest.mark.parametrize("name", CASES)
def test_the_files_of_a_digest_are_known_again(name: str) -> None:
    made = cluster_files(CASES[name])
    assert are_of(made.files, made.digest)
    conf = made.files["slurm.conf"]
    for other in (conf + "#", "#" + conf, conf.replace("Licenses=", "Licenses=x:1,")):
        assert not are_of({**made.files, "slurm.conf": other}, made.digest)
    assert not are_of({}, made.digest)


def test_the_place_of_the_operators_epilog_is_taken() -> None:
    (refusal,) = cluster_files(inputs(scripts={"Epilog": {EPILOG: "#!/bin/sh\n"}})).refused
    assert str(refusal) == f"Epilog {EPILOG} is refused: another script has this name"


def test_the_epilog_is_a_script_that_succeeds_and_runs_last(tmp_path: Path) -> None:
    """Slurm drains a node whose epilog fails; it runs epilogs by their names, the last one first."""
    script = tmp_path / EPILOG
    script.write_text(cluster_files(CASES["shared-node-sets"]).files[EPILOG])
    script.chmod(0o755)
    assert subprocess.run([script], check=False).returncode == 0  # no redbox-slurmpod is here
    assert min("a.sh", "Z", "00", "1", EPILOG) == EPILOG


def test_the_order_of_node_sets_does_not_matter() -> None:
    one = inputs(partitions({"name": "p"}), node_sets=(node_set("a"), node_set("b")))
    other = inputs(partitions({"name": "p"}), node_sets=(node_set("b"), node_set("a")))
    assert cluster_files(one).digest == cluster_files(other).digest


def test_a_partition_that_is_wanted_again_is_not_drained() -> None:
    case = inputs(partitions({"name": "old"}), removed_partitions=(RemovedPartition(OLD, draining=True),))
    (line,) = cluster_files(case).partitions
    assert dict(line.options)["State"] == "UP"


def test_of_two_partitions_with_one_name_the_second_is_refused() -> None:
    case = inputs(partitions({"name": "w"}), node_sets=(node_set(partition={"enabled": True}),))
    files = cluster_files(case)
    assert len(files.partitions) == 1
    assert [str(refusal) for refusal in files.refused] == [
        "a second partition w is refused: choose another name"
    ]


def test_what_clients_of_an_external_slurmctld_read() -> None:
    assert client_conf("lab", "ctl.example.org", 6817) == (
        "ClusterName=lab\nSlurmctldHost=ctl.example.org\nSlurmctldPort=6817\n"
        "AuthType=auth/slurm\nCredType=cred/slurm\nAuthInfo=use_client_ids\nAuthAltTypes=auth/jwt\n"
    )
    assert client_conf("lab", "ctl.example.org", 6817, has_munge=True) == (
        "ClusterName=lab\nSlurmctldHost=ctl.example.org\nSlurmctldPort=6817\n"
        "AuthType=auth/munge\nCredType=cred/munge\nAuthAltTypes=auth/jwt\n"
    )
