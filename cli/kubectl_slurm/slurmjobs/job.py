"""A SlurmJob as the commands show it: the object of the API server, with Slurm's own words for it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any

from kubectl_slurm.errors import BadUsage
from redbox_shared.job_end import JobEnd
from redbox_shared.requested_actions import CANCEL, REQUESTED
from redbox_shared.wire import HELD_BY_SLURM, HELD_BY_USER

Object = dict[str, Any]

REFUSED_EXIT = 65
ON_A_LOGIN_NODE = (
    (re.compile("`sinfo [^`]*`"), "`kubectl slurm info -o wide`"),
    (re.compile("`sacctmgr [^`]*`"), "`kubectl slurm doctor`"),
)
FINAL = frozenset({"Succeeded", "Failed", "Cancelled"})
COMPACT = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETING": "CG", "CONFIGURING": "CF",
    "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F", "TIMEOUT": "TO", "OUT_OF_MEMORY": "OOM",
    "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL", "REQUEUED": "RQ",
    "REQUEUE_HOLD": "RH", "REQUEUE_FED": "RF", "RESV_DEL_HOLD": "RD", "SPECIAL_EXIT": "SE", "STOPPED": "ST",
    "RESIZING": "RS", "REVOKED": "RV", "SIGNALING": "SI", "STAGE_OUT": "SO",
}  # fmt: skip
"""squeue's codes of Slurm's states."""
WITHOUT_CODE = frozenset({"EXPEDITING", "LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL"})
NOT_IN_SLURM = "-"
STATES = {*COMPACT, *COMPACT.values(), *WITHOUT_CODE, NOT_IN_SLURM, "ALL"}


@dataclass(frozen=True)
class SlurmJobView:
    """One SlurmJob. Of what is not known a field is empty or None."""

    obj: Object

    @property
    def metadata(self) -> Object:
        return dict(self.obj.get("metadata") or {})

    @property
    def spec(self) -> Object:
        return dict(self.obj.get("spec") or {})

    @property
    def status(self) -> Object:
        return dict(self.obj.get("status") or {})

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid", ""))

    @property
    def version(self) -> str:
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def service_account(self) -> str:
        return str(self.spec.get("serviceAccountName") or "default")

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "Pending")

    @property
    def state(self) -> str:
        """Slurm's word."""
        return self._text("state")

    @property
    def code(self) -> str:
        """As squeue's column ST."""
        if self.being_cancelled:
            return "CA"
        if not self.state and self.phase == "Cancelled":
            return "CA"
        return COMPACT.get(self.state, self.state[:4]) or NOT_IN_SLURM

    @property
    def reason(self) -> str:
        return self._text("reason")

    @property
    def message(self) -> str:
        """With commands of this plugin: its user may have no login where red-box's advice can be typed."""
        text = self._text("message")
        for of_slurm, ours in ON_A_LOGIN_NODE:
            text = of_slurm.sub(ours, text)
        return text

    @property
    def job_id(self) -> str:
        return self._text("jobID")

    @property
    def shown_id(self) -> str:
        """As squeue's column JOBID: an array's with its indexes while none of them has begun."""
        if not self.job_id:
            return NOT_IN_SLURM
        array = self.spec.get("array")
        return f"{self.job_id}_[{array}]" if array and self.phase == "Submitted" else self.job_id

    @property
    def cluster(self) -> str:
        """The SlurmCluster; none where it is a SlurmEndpoint."""
        return self._text("cluster") or ("" if self.endpoint else str(self.spec.get("cluster") or ""))

    @property
    def endpoint(self) -> str:
        """Or the SlurmEndpoint."""
        return self._text("endpoint") or (
            "" if self._text("cluster") else str(self.spec.get("endpoint") or "")
        )

    @property
    def cluster_key(self) -> str:
        """The same for jobs of the same Slurm cluster: SlurmEndpoints are of a namespace."""
        return f"{self.namespace}/{self.endpoint}" if self.endpoint else self.cluster

    @property
    def partition(self) -> str:
        return self._text("partition") or str(self.spec.get("partition") or "")

    def is_of_partition(self, names: str) -> bool:
        """Whether it is in one of these, `a,b`, or may run in one: a waiting job may have several, too."""
        return not {*self.partition.split(",")}.isdisjoint(names.split(","))

    @property
    def user(self) -> str:
        return self._text("user")

    @property
    def nodes(self) -> str:
        """How many: those that it has, or else those that it asks for."""
        given = self.status.get("nodes") or ()
        return str(len(given) or self.resources.get("nodes") or "")

    @property
    def node_list(self) -> str:
        return self._text("nodeList")

    @property
    def resources(self) -> Object:
        return dict(self.spec.get("resources") or {})

    @property
    def time_limit(self) -> str:
        return str(self.resources.get("time") or "")

    @property
    def attempt(self) -> int:
        return int(self.status.get("attempts") or 1)

    @property
    def run(self) -> int:
        return int(self.status.get("run") or 1)

    @property
    def pod(self) -> str:
        """The pod that has its log."""
        recorded = (self.status.get("companion") or {}).get("name")
        return str(recorded or (f"{self.name}-job" + (f"-{self.attempt}" if self.attempt > 1 else "")))

    def as_of_attempt(self, number: int) -> SlurmJobView:
        """The same SlurmJob, with the pod and the log of an attempt before."""
        if number == self.attempt:
            return self
        return SlurmJobView({**self.obj, "status": {**self.status, "attempts": number, "companion": None}})

    @property
    def is_array(self) -> bool:
        return bool(self.spec.get("array") or self.status.get("array"))

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    @property
    def held(self) -> bool:
        return bool(self.spec.get("hold"))

    @property
    def held_by_slurm(self) -> bool:
        """Without a request: a node could not launch the job."""
        return self.reason in HELD_BY_SLURM and not self.finished

    @property
    def held_in_slurm(self) -> bool:
        """By its own script (`#SBATCH --hold`), or on the login node."""
        return self.reason == HELD_BY_USER and not self.finished

    @property
    def being_deleted(self) -> bool:
        return "deletionTimestamp" in self.metadata

    @property
    def being_cancelled(self) -> bool:
        """By its deletion, or because that is requested."""
        requested = (self.metadata.get("annotations") or {}).get(CANCEL) == REQUESTED
        return (self.being_deleted or requested) and not self.finished

    @property
    def in_slurm(self) -> bool:
        return bool(self.job_id)

    @property
    def running(self) -> bool:
        return self.phase == "Running"

    @property
    def finished(self) -> bool:
        """Whether the last attempt has ended."""
        return self.condition("Finished").get("status") == "True"

    @property
    def created_at(self) -> datetime | None:
        return read_time(self.metadata.get("creationTimestamp"))

    @property
    def working_directory(self) -> str:
        return str(self.status.get("workingDirectory") or "")

    @property
    def submitted_at(self) -> datetime | None:
        return read_time(self.status.get("submittedAt"))

    @property
    def started_at(self) -> datetime | None:
        return read_time(self.status.get("startedAt"))

    @property
    def ended_at(self) -> datetime | None:
        return read_time(self.status.get("endedAt"))

    @property
    def has_begun(self) -> bool:
        return self.started_at is not None and self.phase not in {"Pending", "Submitted"}

    def elapsed_s(self, now: datetime) -> float | None:
        """How long its newest run takes or took."""
        if self.started_at is None or not self.has_begun:
            return None
        return max(0.0, ((self.ended_at or now) - self.started_at).total_seconds())

    def is_called(self, text: str) -> bool:
        """By its name, or by its Slurm job id, each as the commands print it."""
        is_id = self.in_slurm and text in {self.job_id, self.shown_id}
        return is_id or without_kind(text) == self.name

    def condition(self, kind: str) -> Object:
        return next((item for item in self.status.get("conditions") or () if item.get("type") == kind), {})

    def pod_exit_code(self) -> int:
        """As its pod exits, and so `--wait`: the job's own code, or one that says how it ended."""
        if not self.in_slurm and self.phase == "Failed":
            return REFUSED_EXIT
        end = self.condition("Finished").get("reason") or self.phase
        return JobEnd({**self.status, "phase": end}).pod_exit_code()

    def is_in(self, states: Iterable[str]) -> bool:
        """Whether it is in one of these states, each Slurm's word or squeue's code for it, or ALL."""
        return "ALL" in states or bool({self.state, self.code} & {*states})

    def exit_status(self) -> str:
        """As sacct's column ExitCode: code and signal."""
        if "exitCode" not in self.status and "signal" not in self.status:
            return ""
        return f"{self.status.get('exitCode') or 0}:{self.status.get('signal') or 0}"

    def _text(self, name: str) -> str:
        return str(self.status.get(name) or "")


def without_kind(text: str) -> str:
    """The name in `slurmjob/NAME`, as commands print it too."""
    return text.removeprefix("slurmjob/").removeprefix("slurmjob.redbox.dev/")


def of_my_user(jobs: Sequence[SlurmJobView], namespace: str, service_account: str) -> list[SlurmJobView]:
    """Those that run as the Unix user of my service account; its jobs that are not in Slurm yet, too."""

    def of_my_account(job: SlurmJobView) -> bool:
        return job.namespace == namespace and job.service_account == service_account

    users = {(job.cluster_key, job.user) for job in jobs if of_my_account(job) and job.user}
    return [job for job in jobs if of_my_account(job) or (job.cluster_key, job.user) in users]


def states_in(text: str) -> set[str]:
    """Of an option: PD,RUNNING. Raises BadUsage for one that Slurm has not."""
    words = {word.upper() for word in text.split(",") if word}
    if unknown := sorted(words - STATES):
        raise BadUsage(f"Slurm has no state {unknown[0]}: PD, PENDING, R, RUNNING, CD, ..., or all")
    return words


def read_time(text: object) -> datetime | None:
    """A time of the API server; None if it cannot be read, or has no place in some time zone's calendar."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not MINYEAR < time.year < MAXYEAR:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
