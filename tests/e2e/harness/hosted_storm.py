"""What is killed, drained, deleted or changed under a hosted Slurm, and which jobs that may have taken.

Each fault is repaired where nothing else repairs it. A kind comes again once each has come.
"""

from __future__ import annotations

import calendar
import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.plan import Role
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Host
from redbox_bed.kube import kube_cluster
from tests.e2e.harness.hosted_slurm import NAMESPACE, SLURMCTLD, WORKERS, HostedSlurm, kill_container
from tests.e2e.harness.kubernetes import Object
from tests.e2e.harness.slurmjobs import kill
from tests.e2e.harness.waiting import eventually

MOST_WORKERS = 8
RUNS = frozenset({"RUNNING", "CONFIGURING", "COMPLETING"})
SAVED_LATE_S = 6.0
"""slurmctld saves its state up to 5 s late: what began or ended then is not known after a kill."""
UNSAVED = "slurmctld was killed before it had saved that"
STATE_FILE = "/var/spool/slurmctld/job_state"
OURS = "slurm.redbox.dev"
KILL = 'for each in /proc/[0-9]*; do [ "$(cat $each/comm)" = {name} ] && kill -9 ${{each#/proc/}}; done; true'
Fields = dict[str, str]


@dataclass
class HostedStorm:
    """One of them; `acts` says what it did, with the seconds since its begin."""

    bed: Bed
    slurm: HostedSlurm
    chance: random.Random
    results: Path
    """Where the workers' folder for the jobs' output is on this machine."""
    acts: list[str] = field(default_factory=list)
    taken: dict[str, list[str]] = field(default_factory=dict)
    """By job: the faults that may have ended a run of it."""
    ghosts: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Jobs that a container was killed with: its worker, and when."""
    ghost_s: dict[str, float] = field(default_factory=dict)
    """How long each was shown there."""
    submitting: threading.Lock = field(default_factory=threading.Lock)
    _left: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _updates: int = 0

    def strike(self) -> None:
        """The next fault."""
        faults = self._faults()
        self._left = self._left or self.chance.sample(list(faults), len(faults))
        name = self._left.pop()
        began = self.seconds
        words = faults[name]()
        self.acts.append(f"{began:6.1f} to {self.seconds:5.1f}: {name} {words}".rstrip())

    @property
    def has_faults_left(self) -> bool:
        return bool(self._left) or not self.acts

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def jobs(self) -> list[Fields]:
        """Each job, and each element of an array, as scontrol shows it."""
        shown = self.slurm.run("scontrol", "--oneliner", "show", "jobs").splitlines()
        rows = [dict(each.split("=", 1) for each in line.split() if "=" in each) for line in shown]
        return [row for row in rows if "JobId" in row]

    def look_for_ghosts(self) -> None:
        """Jobs that are still shown where their container was killed."""
        if not self.ghosts:
            return
        with suppress(BedError):
            shown = {job["JobId"]: job for job in self.jobs()}
            for job_id, (worker, since) in list(self.ghosts.items()):
                job = shown.get(job_id, {})
                is_there = job.get("JobState") in RUNS and worker in nodes_of(job)
                if not is_there or _began_after(job, since):
                    del self.ghosts[job_id]
                    self.ghost_s[job_id] = time.time() - since

    def calm(self) -> None:
        """As an administrator leaves it: all in service, and all workers wanted."""
        for host in self._nodes():
            self.slurm.kubernetes("uncordon", host.name)
        for worker in self.slurm.workers():
            self._annotate(worker, "pod-cordon", None)
        self.slurm.scale(MOST_WORKERS)
        eventually(self._is_resumed, what="no node that the storm has drained")

    def _is_resumed(self) -> bool:
        """An administrator looks again: a pod may bring its node back while it is resumed."""
        try:
            drained = self.slurm.run("sinfo", "-h", "-N", "-R", "-o", "%N %E").splitlines()
        except BedError:
            return False
        ours = [line.removesuffix(" storm") for line in drained if line.split()[1:] == ["storm"]]
        for node in ours:
            self._slurm("scontrol", "update", f"nodename={node}", "state=resume")
        return not ours

    # ------------------------------------------------------------------------------------ faults
    def _faults(self) -> dict[str, Callable[[], str]]:
        return {
            "scale": self._scale,
            "scale in": lambda: self._scale(most=3),
            "update": self._update,
            "drain of a machine": self._drain_machine,
            "cordon of a pod": self._cordon_pod,
            "condemned": lambda: self._annotate(self._worker(), "condemned", "storm"),
            "drain in Slurm": self._drain_in_slurm,
            "deletion": self._delete,
            "eviction": self._evict,
            "forced deletion": self._force,
            "operator": self._kill_operator,
            "slurmrestd": self._kill_slurmrestd,
            "slurmctld": self._kill_slurmctld,
            "slurmd": self._kill_slurmd,
            "container of a worker": self._kill_container,
            "kubelet": self._restart_kubelet,
        }

    def _scale(self, most: int = MOST_WORKERS) -> str:
        replicas = self.chance.randint(2, most)
        self.slurm.scale(replicas)
        return f"to {replicas}"

    def _update(self) -> str:
        self._updates += 1
        annotations = {f"{OURS}/restartedAt": str(self._updates)}
        self.slurm.change("nodeset", WORKERS, {"template": {"metadata": {"annotations": annotations}}})
        return ""

    def _drain_machine(self) -> str:
        """As before its maintenance, which is put off when it takes too long."""
        node = self.chance.choice(self._nodes()).name
        chosen = ("--delete-emptydir-data", f"--pod-selector={OURS}/nodeset", "--timeout=8s")
        try:
            self.slurm.kubernetes("drain", node, *chosen)
        except BedError as error:
            return f"{node}: {_words(error)}"
        finally:
            self.slurm.kubernetes("uncordon", node)
        return f"{node}: all evicted"

    def _cordon_pod(self) -> str:
        worker = self._worker()
        self._annotate(worker, "pod-cordon", "storm")
        time.sleep(self.chance.uniform(1, 4))
        self._annotate(worker, "pod-cordon", None)
        return worker

    def _drain_in_slurm(self) -> str:
        worker = self._worker()
        update = ("scontrol", "update", f"nodename={worker}")
        self._slurm(*update, "state=drain", "reason=storm")
        time.sleep(self.chance.uniform(1, 4))
        self._slurm(*update, "state=resume")
        return worker

    def _delete(self) -> str:
        """Without waiting: a worker without the label may end meanwhile."""
        worker = self._worker()
        options: list[Object] = [
            {},
            {"propagationPolicy": "Foreground"},
            {"propagationPolicy": "Orphan"},
            {"gracePeriodSeconds": 0},
        ]
        how = self.chance.choice(options)
        busy = self._jobs_on(worker) if how.get("gracePeriodSeconds") == 0 else []
        try:
            self.slurm.kubernetes.delete("pod", worker, namespace=NAMESPACE, wait=False, **how)
        except BedError as error:
            return f"{worker} {how}: {_words(error)}"
        self._takes(f"{worker} was deleted by force", busy)
        return f"{worker} {how}: accepted"

    def _evict(self) -> str:
        worker = self._worker()
        metadata = {"name": worker, "namespace": NAMESPACE}
        body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{worker}/eviction"
        try:
            self.slurm.kubernetes("create", f"--raw={path}", "--filename=-", stdin=body)
        except BedError as error:
            return f"{worker}: {_words(error)}"
        return f"{worker}: accepted"

    def _force(self) -> str:
        worker = self._worker()
        self._takes(f"{worker} was forced", self._jobs_on(worker))
        self._annotate(worker, "force-delete", "storm")
        self._takes(f"{worker} was forced", self._jobs_on(worker))
        return worker

    def _kill_operator(self) -> str:
        kill(self.bed, "redbox-hosting")
        return ""

    def _kill_slurmrestd(self) -> str:
        for host in self._nodes():
            host.run("sh", "-c", "kill -9 $(pgrep -f '^/usr/sbin/slurmrestd ')", check=False)
        return ""

    def _kill_slurmctld(self) -> str:
        """What it has not saved it forgets, and that is Slurm's own limit."""
        with self.submitting:
            later = f"later-{self.chance.randrange(1 << 40):x}"
            saved = f"until grep -qaF {later} {STATE_FILE}; do sleep 0.1; done"
            try:
                self.slurm.run("sbatch", "--hold", f"--job-name={later}", "--wrap=true")
                before = {job["JobId"]: job["JobState"] for job in self.jobs()}
            except BedError as error:
                return f"not killed: {_words(error)}"
            self._slurm("timeout", "30", "sh", "-c", f"{saved}; {KILL.format(name='slurmctld')}")
            killed_at = time.time()
            shown = eventually(self._jobs_again, what="slurmctld")
            self._slurm("scancel", f"--name={later}")
        unsaved = [
            job
            for job in shown
            if before.get(job["JobId"]) != job["JobState"]
            or any(
                killed_at - SAVED_LATE_S <= seconds_of(job[key]) <= killed_at
                for key in ("StartTime", "EndTime")
            )
        ]
        self._takes(UNSAVED, unsaved)
        return ""

    def _jobs_again(self) -> list[Fields]:
        try:
            return self.jobs()
        except BedError:
            return []

    def _kill_slurmd(self) -> str:
        worker = self._worker()
        fresh = [
            job for job in self._jobs_on(worker) if time.time() - seconds_of(job["StartTime"]) < SAVED_LATE_S
        ]
        self._takes(f"slurmd of {worker} was killed while it launched", fresh)
        self._slurm("sh", "-c", KILL.format(name="slurmd"), pod=worker)
        return worker

    def _kill_container(self) -> str:
        """By its first process, which nothing in the container can kill."""
        worker = self._worker()
        pod = self.slurm.kubernetes.get("pod", worker, NAMESPACE)
        if "nodeName" not in pod.get("spec", {}):
            return f"{worker} has none"
        jobs = self._jobs_on(worker)
        kill_container(self.bed, pod)
        killed_at = time.time()
        late = [job for job in self._jobs_on(worker) if not _began_after(job, killed_at)]
        self._takes(f"the container of {worker} was killed", [*jobs, *late])
        for job in [*jobs, *late]:
            self.ghosts[job["JobId"]] = (worker, killed_at)
        return f"{worker} with jobs {', '.join(job['JobId'] for job in jobs) or 'none'}"

    def _restart_kubelet(self) -> str:
        host = self.chance.choice(self._nodes())
        host.kill("kubelet")
        kube_cluster.up(self.bed, Progress.silent())
        return host.name

    # ------------------------------------------------------------------------------------ with
    def _nodes(self) -> list[Host]:
        return [self.bed.host(spec.name) for spec in self.bed.plan.of_role(Role.NODE)]

    def _worker(self) -> str:
        return self.chance.choice(sorted(self.slurm.workers()) or [f"{WORKERS}-0"])

    def _annotate(self, worker: str, name: str, value: str | None) -> str:
        change = {"metadata": {"annotations": {f"{OURS}/{name}": value}}}
        with suppress(BedError):  # it is gone meanwhile
            self.slurm.kubernetes.patch("pod", worker, change, NAMESPACE)
        return worker

    def _slurm(self, *command: str, pod: str = SLURMCTLD) -> None:
        """Of a storm: it may be killed already, or gone."""
        with suppress(BedError):
            self.slurm.run(*command, pod=pod)

    def _jobs_on(self, worker: str) -> list[Fields]:
        try:
            shown = self.jobs()
        except BedError:  # then each may be there
            shown = eventually(self._jobs_again, what="slurmctld")
        return [job for job in shown if job.get("JobState") in RUNS and worker in nodes_of(job)]

    def _takes(self, fault: str, jobs: list[Fields]) -> None:
        for job in jobs:
            self.taken.setdefault(job["JobId"], []).append(fault)


def nodes_of(job: Fields) -> list[str]:
    """Of a few nodes: cpu-1, cpu-[1,3-4] or cpu-1,cpu-3."""
    text = job.get("NodeList", "")
    prefix, bracket, rest = text.partition("[")
    if not bracket:
        return text.split(",")
    names = []
    for part in rest.rstrip("]").split(","):
        first, _, last = part.partition("-")
        names += [f"{prefix}{number}" for number in range(int(first), int(last or first) + 1)]
    return names


def seconds_of(shown: str) -> float:
    """Of scontrol's time, which is UTC in the pods; long ago where there is none."""
    try:
        return calendar.timegm(time.strptime(shown, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return float("-inf")


def _began_after(job: Fields, moment: float) -> bool:
    return seconds_of(job["StartTime"]) > moment


def _words(error: BedError) -> str:
    return " ".join(str(error).split())[-160:]
