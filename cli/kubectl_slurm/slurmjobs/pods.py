"""Pods that run as Slurm jobs, in the form of SlurmJobs, so that a queue shows both alike."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from kubectl_slurm.errors import NotPermitted, PluginError
from kubectl_slurm.kubectl.program import SLURMCLUSTERS, Kubectl
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.job import SlurmJobView

Object = dict[str, Any]
OF_NO_SLURMJOB = "--selector=!redbox.dev/role"
"""Pods of SlurmJobs have this label: of these there may be thousands."""
UNFINISHED = "--field-selector=status.phase!=Succeeded,status.phase!=Failed"
REFRESH_S = 30.0
"""Between two requests for pods: a namespace may have thousands that do not run on Slurm."""
SUBMITTED = "redbox.dev/Submitted"
"""A condition that only resourced writes; its message names the job."""
JOB = re.compile(r"Slurm job (\S+) of (\S+)")
PARTITION = "redbox.dev/partition"
KIND = "pod/"
STATES = {"Running": "RUNNING", "Succeeded": "COMPLETED", "Failed": "FAILED"}


class PodsOnSlurm:
    """Those that Slurm runs or is to run, as they were within the last REFRESH_S.

    The queue does not depend on them: where they cannot be listed, `trouble` has the reason, and they stay as
    they were.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        *,
        everywhere: bool,
        with_ended: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kubectl = kubectl
        self._scope = [*(("--all-namespaces",) if everywhere else ()), OF_NO_SLURMJOB]
        self._scope += [] if with_ended else [UNFINISHED]
        self._clock = clock
        self._listed_at: float | None = None
        self._jobs: list[SlurmJobView] = []
        self.trouble = ""

    def current(self) -> list[SlurmJobView]:
        now = self._clock()
        if self._listed_at is None or now - self._listed_at >= REFRESH_S:
            self._listed_at = now
            try:
                self._jobs, self.trouble = self._list(), ""
            except PluginError as error:
                self.trouble = f"pods on Slurm are not listed: {error}"
        return self._jobs

    def _list(self) -> list[SlurmJobView]:
        """None where no SlurmCluster runs pods, or the user may not list them."""
        try:
            if not _may_run(self._kubectl):
                return []
            found = self._kubectl.json("get", "pods", *self._scope)["items"]
        except NotPermitted:
            return []
        return [job for job in map(as_job, found) if job is not None]


def _may_run(kubectl: Kubectl) -> bool:
    """Whether a SlurmCluster runs pods; yes where the user may not see SlurmClusters."""
    try:
        clusters = kubectl.json("get", SLURMCLUSTERS)["items"]
    except NotPermitted:
        return True
    return any(ClusterView(obj).runs_pods for obj in clusters)


def as_job(pod: Object) -> SlurmJobView | None:
    """None: it does not run on Slurm. Pure."""
    status, spec, metadata = pod.get("status", {}), pod["spec"], pod["metadata"]
    submitted = _condition(status, SUBMITTED)
    if not submitted:
        return None
    phase = str(status.get("phase", "Pending"))
    job, containers = JOB.match(submitted.get("message", "")), status.get("containerStatuses") or ()
    states = [container.get("state") or {} for container in containers]
    waiting: Object = next((state["waiting"] for state in states if "waiting" in state), {})
    started = [state["running"]["startedAt"] for state in states if "running" in state]
    ended = [state["terminated"].get("finishedAt") or "" for state in states if "terminated" in state]
    cluster, _, partition = str(spec.get("nodeName", "")).partition(".")
    has_ended = phase in {"Succeeded", "Failed"}
    shown: Object = {
        "phase": "Submitted" if phase == "Pending" and job else phase,
        "state": STATES.get(phase, "PENDING") if job or has_ended else "",
        "jobID": job[1] if job else "",
        "user": job[2] if job else "",
        "cluster": cluster,
        "partition": (spec.get("nodeSelector") or {}).get(PARTITION) or partition,
        "reason": status.get("reason") or waiting.get("reason") or submitted.get("reason"),
        "message": status.get("message") or waiting.get("message") or submitted.get("message"),
        "nodeList": status.get("hostIP") if phase == "Running" else "",
        "nodes": [status.get("hostIP")],
        "startedAt": min(started, default=None),
        "endedAt": max(ended, default=None) if has_ended else None,
        "conditions": [{"type": "Finished", "status": str(has_ended)}],
    }
    account = {"serviceAccountName": spec.get("serviceAccountName", "default")}
    return SlurmJobView(
        {
            "metadata": {**metadata, "name": f"{KIND}{metadata['name']}"},
            "spec": account,
            "status": shown,
        }
    )


def _condition(status: Object, kind: str) -> Object:
    return next((item for item in status.get("conditions") or () if item.get("type") == kind), {})
