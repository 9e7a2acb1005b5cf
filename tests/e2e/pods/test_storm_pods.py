"""Many pods while resourced, red-box, agents, kubelets, API server, slurmctld and slurmdbd are killed, the
login node's cable is cut and nodes are drained; some pods are deleted, and some by force.

At the end each pod had one job in Slurm, none is left, and each pod that is there says what became of it and
has its whole log. What slurmctld forgot says so. Nothing is left on the nodes or in the home.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from tests import nightly
from tests.e2e.harness.cluster_storm import (
    BEGAN_AGAIN,
    NO_END,
    ClusterStorm,
    accounting_catches_up,
    read_in_the_end,
)
from tests.e2e.harness.left_behind import NODES, left_behind
from tests.e2e.harness.slurm_pods import (
    USER,
    Object,
    SlurmPod,
    SlurmPods,
    condition,
    container,
    ended,
    manifest,
    on_slurm,
)
from tests.e2e.harness.slurmctld_restart import administrator
from tests.e2e.harness.slurmjobs import new_name
from tests.e2e.harness.waiting import eventually

PODS = nightly.count("PODS_STORM", 12, 40)
SEED = int(os.environ.get("PODS_STORM_SEED", "20261123"))
AT_ONCE = max(4, PODS // 20)
DELETED_AT_ONCE = max(1, AT_ONCE // 4)
CALMS_WITHIN_S = 600.0
NEVER_STARTED = "it never started"
NOT_LAUNCHED = {"CANCELLED", "NODE_FAIL"}
COUNTS = [{"name": "data", "emptyDir": {}}]
AT_DATA = [{"name": "data", "mountPath": "/data"}]
FAILS_FIRST = "if [ ! -e /data/again ]; then : > /data/again; echo first; exit 1; fi"
PRINTS = "for part in $(busybox seq 1 10); do busybox seq $part 100; sleep 0.1; done"
OUTPUT = "".join(f"{number}\n" for part in range(1, 11) for number in range(part, 101))


@dataclass
class Expected:
    """A pod, and what has to become of it."""

    pod: SlurmPod
    code: int
    restarts: int
    deleted: bool = False

    @property
    def manifest(self) -> dict[str, object]:
        policy, first = ("OnFailure", FAILS_FIRST) if self.restarts else ("Never", ":")
        main = container(f"{first}; {PRINTS}; exit {self.code}", volumeMounts=AT_DATA)
        spec = on_slurm(main, restartPolicy=policy, volumes=COUNTS, terminationGracePeriodSeconds=2)
        return manifest("Pod", self.pod.name, spec=spec)


@pytest.mark.timeout(1800)
@pytest.mark.nightly
def test_after_a_storm_each_pod_had_one_job_and_says_what_became_of_it(bed: Bed, pods: SlurmPods) -> None:
    chance = random.Random(SEED)
    expected: list[Expected] = []
    before = left_behind(bed)
    storm = ClusterStorm(bed, pods.kubectl, chance, has_resourced=True)
    with administrator(bed):
        while len(expected) < PODS or storm.left:
            if len(expected) < PODS:
                expected += _applied(pods, chance)
            for _ in range(DELETED_AT_ONCE):
                _delete_one(expected, chance)
            storm.strike()
        accounting_catches_up(bed.host("login"))
        faults = [fault for one in expected for fault in _faults(one)]
        eventually(lambda: not _in_queue(bed), CALMS_WITHIN_S, what="an empty queue")
        pods.clean()
        remains = _remains(bed, pods, before)
    deleted = sum(one.deleted for one in expected)
    print(
        f"{len(expected)} pods, {deleted} deleted, faults of {storm.kills}",
        *faults,
        *sorted(remains),
        sep="\n",
    )
    assert (faults, remains) == ([], set()), storm.kills


def _remains(bed: Bed, pods: SlurmPods, before: set[str]) -> set[str]:
    """What is left in the end."""
    with suppress(AssertionError):
        eventually(lambda: not _left_after_cleanup(bed, pods) - before, what="nothing left behind")
    return left_behind(bed) - before


def _left_after_cleanup(bed: Bed, pods: SlurmPods) -> set[str]:
    """What is left after one more pod on each node, which removes what killed runners have left there."""
    if any(row.startswith(NODES) for row in left_behind(bed)):
        cleaners = [_on_node(pods, node) for node in NODES]
        assert {pod.ends()["phase"] for pod in cleaners} == {"Succeeded"}
        pods.clean()
    return left_behind(bed)


def _on_node(pods: SlurmPods, node: str) -> SlurmPod:
    return pods.run(container("true"), metadata={"annotations": {"redbox.dev/options": f"--nodelist={node}"}})


def _applied(pods: SlurmPods, chance: random.Random) -> list[Expected]:
    batch = [_chosen(pods, chance) for _ in range(AT_ONCE)]
    _insist(lambda: pods.apply_all(*(one.manifest for one in batch)))
    return batch


def _chosen(pods: SlurmPods, chance: random.Random) -> Expected:
    restarts = chance.choice([0, 1])
    return Expected(pods.of(new_name()), 0 if restarts else chance.choice([0, 0, 5]), restarts)


def _insist(act: Callable[[], object]) -> None:
    """Users try again while the API server is away."""

    def tried() -> bool:
        try:
            act()
        except BedError:
            return False
        return True

    eventually(tried, what="an API server that answers")


def _delete_one(expected: list[Expected], chance: random.Random) -> None:
    """One of the newest, which waits, starts, runs or ends; by force every other time."""
    one = chance.choice(expected[-2 * AT_ONCE :])
    how = ["--force", "--grace-period=0"] if chance.random() < 0.5 else ["--wait=false"]
    one.deleted = True
    _insist(lambda: one.pod("delete", "pod", one.pod.name, "--ignore-not-found", *how))


def _jobs_of(pod: SlurmPod) -> list[tuple[str, str]]:
    """As the accounting shows them; the login node's cable may still be cut."""
    found: list[list[tuple[str, str]]] = []
    _insist(lambda: found.append(pod.in_slurm()))
    return found[0]


def _faults(one: Expected) -> list[str]:
    pod, name = one.pod, one.pod.name
    if one.deleted:
        eventually(lambda: not pod.manifest, CALMS_WITHIN_S, what=f"the end of {name}")
        rows = _jobs_of(pod)
        return [f"{name}: deleted, and had the jobs {rows}"] if len(rows) > 1 else []
    ends = {"Succeeded", "Failed"}
    eventually(lambda: pod.status.get("phase") in ends, CALMS_WITHIN_S, what=f"the last phase of {name}")
    status, rows = pod.status, _jobs_of(pod)
    if status.get("reason") == "Lost":
        return [f"{name}: lost, and {rows}"] if [row for row in rows if row[1] not in NO_END] else []
    if condition(status, "DisruptionTarget"):
        return _faults_of_disrupted(pod, status, rows)
    found = []
    state, phase = ("FAILED", "Failed") if one.code else ("COMPLETED", "Succeeded")
    try:
        eventually(lambda: _is_accounted(pod, status, state), what="its job in the accounting")
    except AssertionError:
        found.append(f"{name}: sacct has {_jobs_of(pod)}, the status says {pod.job_id}: {status}")
    if status["phase"] != phase or "terminated" not in status["containerStatuses"][0]["state"]:
        return [*found, f"{name}: {status}, not {phase}"]
    shown = (ended(status)["exitCode"], status["containerStatuses"][0]["restartCount"])
    if shown != (one.code, one.restarts):
        found.append(f"{name}: exit code and restarts {shown}, not {(one.code, one.restarts)}")
    log = read_in_the_end(pod.log)
    if log != OUTPUT:
        found.append(f"{name}: its log has {len(log)} bytes of {len(OUTPUT)}")
    return found


def _is_accounted(pod: SlurmPod, status: Object, state: str) -> bool:
    """Whether the accounting has its one job in this state; slurmctld may tell it later.

    Of a job that slurmctld forgot the accounting never has an end; its runner has reported it all the same.
    It has nothing at all of one where slurmctld was killed before it had sent what it keeps for slurmdbd.
    """
    rows = _jobs_of(pod)
    if not rows:
        return True
    states = [row[1] for row in rows if row[1] not in BEGAN_AGAIN]
    is_right = states == [state] or NO_END.issuperset(states) or _began_after_its_end(pod, status)
    return {row[0] for row in rows} == {pod.job_id} and is_right


def _faults_of_disrupted(pod: SlurmPod, status: Object, rows: list[tuple[str, str]]) -> list[str]:
    """A slurmctld that was killed around a start launches the job again, or gives another its id.

    Its node refuses that, and the job is cancelled: before its containers have started, or while they run.
    """
    ids, states = {row[0] for row in rows}, {row[1] for row in rows}
    as_slurm_shows = ids <= {pod.job_id} and states <= NOT_LAUNCHED

    def refusal() -> str:
        try:
            return pod.log()
        except BedError as error:
            if NEVER_STARTED in str(error):
                return NEVER_STARTED
            raise

    log = read_in_the_end(refusal)
    if as_slurm_shows and ended(status)["exitCode"] and (log == NEVER_STARTED or OUTPUT.startswith(log)):
        return []
    return [f"{pod.name}: disrupted, and sacct has {rows}, {len(log)} bytes of log: {status}"]


def _began_after_its_end(pod: SlurmPod, status: Object) -> bool:
    """Whether Slurm started the job again: slurmctld was killed before it had saved that it was over.

    Such a run finds no pod to run; its state says nothing of the pod.
    """
    (main,) = status.get("containerStatuses") or [{"state": {}}]
    if "terminated" not in main["state"]:
        return False
    ended_at = datetime.fromisoformat(main["state"]["terminated"]["finishedAt"]).timestamp()
    starts = ("sacct", "-XDnP", "-o", "Start", "-j", pod.job_id)
    shown = pod.login.run("env", "SLURM_TIME_FORMAT=%s", *starts).stdout.split()
    return any(start.isdigit() and int(start) >= ended_at for start in shown)


def _in_queue(bed: Bed) -> list[str]:
    queue = ("squeue", "--noheader", f"--user={USER}", "--format=%A %j %T")
    return bed.host("login").run(*queue, check=False).stdout.splitlines()
