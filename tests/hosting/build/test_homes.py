"""The Job that makes homes: a snapshot, and what it may do."""

from __future__ import annotations

from pathlib import Path

import yaml

from redbox_hosting.build.pods.homes import homes_job
from redbox_hosting.build.pods.pod_security import beyond_plain, places_of
from redbox_slurmpod.cli import _parser
from tests.hosting.build.pod_security import beyond_restricted
from tests.hosting.factories import cell
from tests.hosting.snapshots import check

SNAPSHOT = Path(__file__).with_name("snapshots") / "homes.yaml"
PLACED = {"nodeSelector": {"pool": "a"}, "hostNetwork": True, "tolerations": None}
JOB = homes_job(
    cell(
        {
            "redbox": {"users": {"configMapRef": {"name": "people"}}, "homes": {"claimName": "homes"}},
            "template": {"spec": PLACED},
        }
    ),
    "slurm-homes-0123456789",
    "d1",
)
POD = JOB["spec"]["template"]["spec"]


def test_the_job() -> None:
    check(SNAPSHOT, yaml.safe_dump(JOB, sort_keys=False))
    assert _parser().parse_args(POD["containers"][0]["args"]).digest == "d1"


def test_it_is_root_only_to_give_a_folder_away() -> None:
    assert beyond_plain("homes", POD, places_of(POD)) == []
    assert beyond_restricted("homes", POD) == [
        "securityContext.runAsUser",
        "containers[homes].securityContext.runAsNonRoot",
        "containers[homes].securityContext.capabilities.add",
    ]
    assert POD["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert (POD["automountServiceAccountToken"], POD["enableServiceLinks"]) == (False, False)
    assert [next(iter(volume.keys() - {"name"})) for volume in POD["volumes"]] == [
        "configMap",
        "persistentVolumeClaim",
    ]
