"""Callers, owners, users, and the names of jobs.

Plain frozen values that every other module passes around. `callers` authenticates and maps callers,
`workload_manager` describes the jobs of Slurm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """`submit` own jobs; watch, cancel and hold a cluster's (`operator`); see its partitions (`reader`).

    `volumes`: delete the folders that red-box made for its cluster's volumes, and nothing else.
    `exec`: beside `submit`, enter own jobs where `exec.roles` asks for it.
    `requeue`: beside `operator`, end running jobs of the cluster and have them run again.
    `metrics`: read Slurm's metrics, which count the jobs of all users.
    """

    SUBMIT = "submit"
    OPERATOR = "operator"
    READER = "reader"
    VOLUMES = "volumes"
    EXEC = "exec"
    REQUEUE = "requeue"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True)
class UnixUser:
    """The account that a job runs under."""

    name: str
    uid: int


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The service account that a job belongs to.

    `account_uid` is the service account's uid: a namespace that is deleted and created again
    inherits the mapping of its accounts, but not their jobs.
    """

    cluster: str
    namespace: str
    account: str
    account_uid: str = ""

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace}/{self.account}"


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job's name, given by its owner: the same key of another owner is another job."""

    owner: Owner
    key: str
    attempt: int = 1

    def __str__(self) -> str:
        return f"{self.owner}/{self.key}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class Limits:
    """The accounts and partitions that a mapping rule lets a caller use; None is unlimited."""

    accounts: frozenset[str] | None = None
    partitions: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated identity, and what the administrator's rules map it to."""

    identity: str  # as authenticated: system:serviceaccount:ns:name, token:ID, uid:2001
    owner: Owner
    roles: frozenset[Role]
    user: UnixUser | None = None  # None for operators and readers
    limits: Limits = field(default_factory=Limits)
    until: float = field(default=math.inf, compare=False)  # the Unix time at which the proof expires

    @property
    def name(self) -> str:
        """The name that the caller's share of connections is counted by: the user, else the identity.

        Operators have the same name in each Kubernetes cluster.
        """
        return self.user.name if self.user else f"{self.identity} of cluster {self.owner.cluster}"

    def may(self, role: Role) -> bool:
        return role in self.roles


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job as its caller addresses it."""

    caller: Caller
    key: str
    attempt: int = 1


class JobShape(StrEnum):
    """What a job consists of, which nothing changes once it was submitted."""

    PLAIN = "plain"
    ARRAY = "array"
    HETEROGENEOUS = "heterogeneous"
