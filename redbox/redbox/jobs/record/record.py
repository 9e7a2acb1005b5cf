"""The record of a job, in memory and in the journal.

A `JobRecord` is a frozen value; the pure modules make a new one from an old one, the record store commits and
publishes it, `api_view` shows it to callers. The journal stores its fields under the keys that `codec` lists.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeVar

from redbox.core.domain import JobKey, JobShape, Limits, Owner, UnixUser
from redbox.core.observations import Observation, ObservedStatus
from redbox.core.workload_manager import JobHandle
from redbox_api.models import FINAL_PHASES, Phase
from redbox_shared.wire import LAUNCH_FAILED

T = TypeVar("T")
ALL_ATTEMPTS = 0
FORGOTTEN = "ForgottenBySlurm"
LONGEST_WARNING = 1000  # some are the words of a command, for which the user's agent may say anything
OUTPUT_AWAITED_S = 900.0
UNCLAIMED = "?"  # the cluster of an owner whose names a lost journal took with it

Lineage = tuple[str, str, str, str]


SortKey = tuple[str, str, str, str, str, int]


def sort_key(key: JobKey | Tombstone) -> SortKey:
    """Owner, key and attempt, in the order of lists and of the journal's columns."""
    owner = key.owner
    return (owner.cluster, owner.namespace, owner.account, owner.account_uid, key.key, key.attempt)


def lineage(owner: Owner, key: str) -> Lineage:
    """All attempts of a key, whatever uid the account had: operators cannot know that uid."""
    return (owner.cluster, owner.namespace, owner.account, key)


@lru_cache(maxsize=10_000)
def shared(value: T) -> T:
    """An equal value that is in use already: ten thousand jobs have a handful of owners and users."""
    return value


class Stage(StrEnum):
    """How far the submit is, according to the journal."""

    INTENT = "intent"  # sbatch may run, may have run, or may be about to
    UNCONFIRMED = "unconfirmed"  # not found: a retry is held, because the first may still arrive
    BOUND = "bound"  # it has an id
    NEVER = "never"  # cancelled without ever having had an id


class JobDependency(NamedTuple):
    """A dependency as it was submitted: `key` names a job of the same owner, `job_id` is its id then."""

    type: str
    key: str | None
    job_id: str | None  # None of a singleton, and of one that was met before the submit

    def __str__(self) -> str:
        return self.type if self.job_id is None else f"{self.type}:{self.job_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job, from its intent to its end."""

    key: JobKey
    user: UnixUser
    mark: str
    body_id: str
    body_digest: str | None = None  # None in a rebuilt journal: whether the body changed is then unknown
    spec_digest: str | None = None
    job_name: str = ""
    shape: JobShape | None = None  # None: submitted by an earlier release, or not certain from its script
    working_directory: str = ""
    hold: bool = False  # the request itself asks for it
    limits: Limits = field(default_factory=Limits)  # of the rule that it was submitted by
    appends: bool | None = None  # whether its next run appends to its output; None: Slurm's default
    credentials: bool = False  # secrets may lie in its private folder, which is removed once it has ended
    is_pod: bool = False  # its containers are a runner's, which reports on them
    grace_s: int = 0  # of a pod: how long its runner may take to stop the containers
    pod_inputs: str = ""  # of a pod: what its sender made it of, or of which it was last updated
    created_at: datetime
    last_submit_at: datetime  # when a submit of it was last under way

    stage: Stage = Stage.INTENT
    job_id: str | None = None
    bound_at: datetime | None = None
    confirmed: bool = False  # a poll has shown uid and mark under this id
    held_retry: bool = False  # submitted held, and not yet proven to be the only one
    unanswered_at: datetime | None = None  # when a submit before this one, never answered, was last under way
    cancel_requested: bool = False
    cancel_forced: bool = False  # of a pod: without its grace
    cancel_after_end: bool = False  # it was requested of a final record: it holds for a further run
    stopping_since: datetime | None = None  # of a pod: when its runner first got the signal to end
    limits_exceeded: str = ""  # how it breaks its limits: why red-box itself cancels it
    in_queue: bool = False  # Slurm's queue still shows it, ended or not: it may live again
    first_seen_late: bool = False  # an array of which the queue may have forgotten tasks by then

    boot_time: str = ""  # of the controller that accepted or showed it last, or of the one before
    lost_reason: str = ""
    no_sign_of_start: bool = False  # of a job that was forgotten, or that its node could not launch
    uncounted_runs: int = 0  # that the workload manager does not count as restarts
    earlier_start: datetime | None = None  # of the run before this one, where a poll has shown it
    dependencies: tuple[JobDependency, ...] = ()
    held_for_dependency: bool = False  # by red-box: a job that it depends on is absent or forgotten

    phase: Phase = Phase.SUBMITTING
    message: str | None = None
    warnings: tuple[str, ...] = ()
    run: int = 1
    status: ObservedStatus = field(default_factory=ObservedStatus)
    ending_since: datetime | None = None  # since when in a final state that Slurm may take back
    absent_since: datetime | None = None  # since when in neither queue nor accounting
    final_at: datetime | None = None
    pod_report: str = ""  # of a pod: the last report of its runner, as JSON
    report_settled: bool = False  # of a pod: nothing but its end will change the report
    report_complete: bool = False  # of a pod: no later report will be read
    revision: int = 0

    @property
    def final(self) -> bool:
        return self.phase in FINAL_PHASES

    @property
    def end_was_seen(self) -> bool:
        """Whether the workload manager showed its end, even one that leaves its outcome unknown."""
        return self.final and (self.phase is not Phase.LOST or self.lost_reason == LAUNCH_FAILED)

    @property
    def cancelled_by_redbox(self) -> bool:
        """Whether red-box was to cancel it before it ended: a request after that did not bring the end."""
        return (self.cancel_requested and not self.cancel_after_end) or bool(self.limits_exceeded)

    @property
    def watched(self) -> bool:
        """Whether polls must look for it."""
        return self.in_queue or not self.final or self.credentials

    @property
    def at_rest(self) -> bool:
        """Whether only another state of its job can change it: polls have nothing else to decide."""
        if self.final or self.stage is Stage.UNCONFIRMED:
            return True
        to_be_cancelled = self.cancel_requested or bool(self.limits_exceeded)
        unproven = self.held_retry or self.unanswered_at is not None or not self.confirmed
        between = self.ending_since is not None or self.absent_since is not None or self.held_for_dependency
        return self.stage is Stage.BOUND and not (to_be_cancelled or unproven or between)

    @property
    def awaits_report(self) -> bool:
        """Whether this pod has ended, and its last report is still to be read: only then is it final."""
        return self.is_pod and self.ending_since is not None and not (self.final or self.report_complete)

    def awaits_output(self, now: datetime) -> bool:
        """Whether what keeps its files from being read may still pass: for some time after its end.

        It may be an I/O error, or that there is no agent, as in an outage of the directory of users. A job's
        companion ends only with its logs and its results.
        """
        return self.final_at is None or (now - self.final_at).total_seconds() < OUTPUT_AWAITED_S

    @property
    def settled_at(self) -> datetime:
        """Since when a record that has ended or never began is unchanged."""
        return self.final_at or self.last_submit_at

    @property
    def handle(self) -> JobHandle | None:
        """To act on it; None while it has no id."""
        if self.job_id is None:
            return None
        return JobHandle(self.job_id, self.mark, self.status.name or self.job_name, self.user)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A key that was deleted before its job came to be; attempt 0 is all of them."""

    owner: Owner
    key: str
    attempt: int
    made_at: datetime

    def covers(self, key: JobKey) -> bool:
        """An operator's tombstone names no account uid, and holds for any."""
        same_uid = self.owner.account_uid in ("", key.owner.account_uid)
        return same_uid and self.attempt in (ALL_ATTEMPTS, key.attempt)


def with_warning(record: JobRecord, warning: str) -> JobRecord:
    """The record with this warning, once; the last few are kept."""
    warning = warning[:LONGEST_WARNING]
    if warning in record.warnings:
        return record
    return replace(record, warnings=(*record.warnings[-7:], warning))


STATUS_FIELDS = tuple(item.name for item in fields(ObservedStatus))
COMMON_STRINGS = ("state", "reason", "partition", "account", "qos", "nodes")


def status_from(observation: Observation) -> ObservedStatus:
    """The fields of an observation that are kept; strings that many jobs share are kept once."""
    values = {name: getattr(observation, name) for name in STATUS_FIELDS}
    values |= {name: sys.intern(values[name]) for name in COMMON_STRINGS}
    return ObservedStatus(**values)
