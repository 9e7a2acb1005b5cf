"""Many jobs on a hosted Slurm while it is scaled, updated, drained, deleted and killed.

At the end each job that no fault of the storm's own may have taken has ended once, with its own output. The
others were requeued, or Slurm shows that their node failed, and an event names them. Workers, records and
conditions are as Slurm says.

HOSTED_STORM_SEED repeats the order of faults and jobs; HOSTED_STORM_JOBS, HOSTED_STORM_SECONDS and
HOSTED_STORM_LONGEST say how many jobs, how long the storm lasts, and the longest job.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_slurm import (
    CLUSTER,
    NAMESPACE,
    PROTECTED,
    WORKER_LIMITS,
    WORKERS,
    applied_slurm,
    hosting,
)
from tests.e2e.harness.hosted_storm import MOST_WORKERS, HostedStorm
from tests.e2e.harness.hosted_storm_jobs import KINDS, RESULTS, StormJob, Users
from tests.e2e.harness.kubernetes import Object
from tests.e2e.harness.volumes import claim_of_all
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
JOBS = int(os.environ.get("HOSTED_STORM_JOBS", "24"))
BLOWS_S = float(os.environ.get("HOSTED_STORM_SECONDS", "75"))
SEED = int(os.environ.get("HOSTED_STORM_SEED", "20261129"))
LONGEST_S = int(os.environ.get("HOSTED_STORM_LONGEST", "40"))
CALMS_WITHIN_S = 600.0
TRUE_IN_TROUBLE = frozenset(
    {
        *("Degraded", "Draining", "MachinesLost", "NodesMissing", "NodesUnreadable", "PodAltered"),
        *("Progressing", "SlurmRead", "UpgradeBlocked"),
    }
)
NONE_LEFT = frozenset({"unavailableReplicas", "slurmAllocated", "slurmDown", "slurmDrain"})
ENDED = frozenset({"COMPLETED", "CANCELLED", "NODE_FAIL", "FAILED", "TIMEOUT", "BOOT_FAIL", "OUT_OF_MEMORY"})


@pytest.fixture(params=["24.11", "26.05"])
def storm(bed: Bed, request: pytest.FixtureRequest) -> Iterator[HostedStorm]:
    with hosting(bed, request.param) as kubernetes:
        folder = claim_of_all(bed, NAMESPACE, "results")
        claim = {"name": "results", "persistentVolumeClaim": {"claimName": "results"}}
        mounts = [{"name": "results", "mountPath": RESULTS}]
        workers = {
            "template": {"spec": {"volumes": [claim]}},
            "slurmd": {"resources": {"limits": {**WORKER_LIMITS, "cpu": "200m"}}, "volumeMounts": mounts},
        }
        conf = {"extraConf": "MinJobAge=86400"}
        with applied_slurm(bed, kubernetes, MOST_WORKERS, WORKER_LIMITS, conf, workers) as slurm:
            slurm.has_idle(MOST_WORKERS)
            yield HostedStorm(bed, slurm, random.Random(SEED), folder)
        kubernetes.delete("persistentvolumeclaim", "results", namespace=NAMESPACE)
        kubernetes.delete("persistentvolume", "results")
        shutil.rmtree(folder)


def test_after_a_storm_all_is_as_slurm_says(storm: HostedStorm) -> None:
    chance = random.Random(SEED + 1)
    jobs = [
        StormJob(f"storm-{number}", chance.randint(5, LONGEST_S), KINDS[number % len(KINDS)])
        for number in range(JOBS)
    ]
    chance.shuffle(jobs)
    users = Users(storm, chance, jobs, pause_s=2 * BLOWS_S / JOBS)
    thread = threading.Thread(target=users.run)
    thread.start()
    try:
        while storm.seconds < BLOWS_S or storm.has_faults_left:
            storm.strike()
            storm.look_for_ghosts()
            time.sleep(storm.chance.uniform(0, 2))
        storm.calm()
        thread.join(CALMS_WITHIN_S)
        assert not thread.is_alive(), "the users do not come to an end"
        eventually(lambda: _have_ended(storm), CALMS_WITHIN_S, what="the end of all jobs")
        faults = [*users.faults(storm.results), *_remaining_differences(storm)]
    finally:
        users.over.set()
        thread.join()
        print(f"HOSTED_STORM_SEED={SEED}", *storm.acts, sep="\n")
        print(f"taken: {storm.taken}", f"ghosts, seconds: {storm.ghost_s}", sep="\n")
    print(*faults, sep="\n")
    assert faults == []


def _have_ended(storm: HostedStorm) -> bool:
    """An administrator does not let a requeued job wait for its two minutes."""
    storm.look_for_ghosts()
    try:
        left = [
            job
            for job in storm.jobs()
            if job["JobState"] not in ENDED and job["JobName"].startswith("storm-")
        ]
        for job in left:
            if job["JobState"] == "PENDING" and job.get("Reason") == "BeginTime":
                storm.slurm.run("scontrol", "update", f"JobId={job['JobId']}", "StartTime=now")
    except BedError:
        return False
    time.sleep(1)
    return not left


def _remaining_differences(storm: HostedStorm) -> list[str]:
    """What is not as Slurm says once everything has come to rest."""
    try:
        eventually(lambda: not _differences(storm), what="conditions that are as Slurm says")
    except AssertionError:
        return _differences(storm)
    return []


def _differences(storm: HostedStorm) -> list[str]:
    slurm = storm.slurm
    pods = slurm.kubernetes.list("pod", NAMESPACE, labels=f"slurm.redbox.dev/nodeset={WORKERS}")
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
    found = [f"ghost {job} on {where}" for job, where in storm.ghosts.items()]
    if len(uids) != MOST_WORKERS:
        found.append(f"workers {sorted(uids)}")
    found += [fault for pod in pods if (fault := _fault_of_pod(pod))]
    for line in slurm.run("scontrol", "--oneliner", "show", "nodes").splitlines():
        node = dict(each.split("=", 1) for each in line.split() if "=" in each)
        if set(node["State"].split("+")) - {"DYNAMIC_NORM"} != {"IDLE"}:
            found.append(f"node {node['NodeName']} is {node['State']}: {line.partition(' Reason=')[2]}")
        if uids.pop(node["NodeName"], "no pod") != node.get("InstanceId"):
            found.append(f"node {node['NodeName']} has the instance id {node.get('InstanceId')}")
    found += [f"{name} has no node" for name in uids]
    status = slurm.status("nodeset", WORKERS)
    counts = {
        key: value for key, value in status.items() if isinstance(value, int) and "eneration" not in key
    }
    if any(value != (0 if key in NONE_LEFT else MOST_WORKERS) for key, value in counts.items()):
        found.append(f"status {counts}")
    both = [*status["conditions"], *slurm.status("controller", CLUSTER)["conditions"]]
    found += [
        f"{one['type']}={one['status']}: {one['message']}"
        for one in both
        if one["status"] != ("False" if one["type"] in TRUE_IN_TROUBLE else "True")
    ]
    return found


def _fault_of_pod(pod: Object) -> str:
    metadata, status = pod["metadata"], pod["status"]
    conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
    is_in_service = conditions.get("slurm.redbox.dev/Draining", "False") == "False"
    is_condemned = "slurm.redbox.dev/condemned" in metadata["annotations"]
    is_protected = metadata["labels"].get(PROTECTED) == "true"
    stays = is_protected and not is_condemned and "deletionTimestamp" not in metadata
    is_well = conditions.get("Ready") == "True" and is_in_service and stays
    return "" if is_well else f"{metadata['name']}: {metadata}, {status}"
