"""The words of red-box: who asks, for whom, which job.

Plain frozen values that every other module passes around. How callers prove who they are is in `callers`,
what Slurm says of a job is in `workload`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """`submit` own jobs; watch, cancel and hold a cluster's (`operator`); see its partitions (`reader`)."""

    SUBMIT = "submit"
    OPERATOR = "operator"
    READER = "reader"


@dataclass(frozen=True, slots=True)
class UnixUser:
    """The account that a job runs under."""

    name: str
    uid: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a job belongs to.

    `account_uid` is the service account's uid: a namespace that is made anew under an old name inherits the
    mapping of its accounts, and none of their jobs.
    """

    cluster: str
    namespace: str
    account: str
    account_uid: str = ""

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace}/{self.account}"


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job's name, given by its owner: two owners may hold one key and see nothing of each other."""

    owner: Owner
    key: str
    attempt: int = 1

    def __str__(self) -> str:
        return f"{self.owner}/{self.key}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a mapping rule lets a caller use; None is no limit."""

    accounts: frozenset[str] | None = None
    partitions: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose identity has been proved, and what the administrator's rules make of it."""

    identity: str  # as it was seen: system:serviceaccount:ns:name, token:ID, uid:2001
    owner: Owner
    roles: frozenset[Role]
    user: UnixUser | None = None  # None for operators and readers
    limits: Limits = field(default_factory=Limits)
    until: float = field(default=math.inf, compare=False)  # the proof counts up to this Unix time

    @property
    def name(self) -> str:
        """By what the caller's share is counted: the user, or the identity where there is none."""
        return self.user.name if self.user else self.identity

    def may(self, role: Role) -> bool:
        """Whether the caller has this role."""
        return role in self.roles


@dataclass(frozen=True, slots=True)
class JobRef:
    """A job, as its caller names it."""

    caller: Caller
    key: str
    attempt: int = 1
