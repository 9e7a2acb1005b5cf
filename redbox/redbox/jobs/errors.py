"""The errors of `jobs`.

JobsError
├── JobNotFound         there is no such job, or it belongs to another owner (the same answer for both)
├── Forbidden           the caller's role or rule does not allow it
├── JobConflict         the key belongs to another request, or the job is not in a state for this
│   └── Tombstoned      the key was deleted before its job was submitted
├── NotAcceptable       the request can never succeed as it is
│   └── RefusedBySlurm  with the workload manager's message
├── RetryableError      the same request may succeed later
│   ├── JobsBusy        the outcome is unknown so far, or Slurm or the journal is unavailable
│   └── RateLimited     the caller sends too many requests, or keeps too many keys
├── Gone                a watch cannot resume from this revision: list, and watch from there
└── JournalError
    ├── JournalInUse      another red-box has it open
    ├── JournalMisplaced  it is on a file system without reliable locks and syncs
    ├── JournalLost       it is new, and jobs in Slurm show that there was another
    ├── JournalUnreadable it is damaged, or was written by a newer red-box
    └── JournalFull       nothing can be written at present; reading goes on
"""

from __future__ import annotations

from typing import ClassVar


class JobsError(Exception):
    """Base; `retry` says whether the same request may succeed later."""

    retry = False
    outcome: ClassVar[str] = "JobsError"  # as the audit log records it

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __init_subclass__(cls) -> None:
        if "outcome" not in vars(cls):
            cls.outcome = cls.__name__


class JobNotFound(JobsError):
    """Also for jobs of others: a caller cannot find out that they exist."""

    outcome = "NoSuchJob"


class Forbidden(JobsError):
    """The caller is authenticated, and not allowed."""


class JobConflict(JobsError):
    """The key or the job is in the way."""

    outcome = "Conflict"


class Tombstoned(JobConflict):
    """This key and attempt is never submitted."""


class NotAcceptable(JobsError):
    """A retry changes nothing."""


class RefusedBySlurm(NotAcceptable):
    """The workload manager rejected the submit or the action."""


class RetryableError(JobsError):
    """A retry is right after `retry_after` seconds."""

    retry = True

    def __init__(self, detail: str, *, retry_after: float = 2.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class JobsBusy(RetryableError):
    """503."""

    outcome = "Busy"


class RateLimited(RetryableError):
    """429."""

    outcome = "TooMany"


class Gone(JobsError):
    """410."""


class JournalError(JobsError):
    """The journal cannot be used."""


class JournalInUse(JournalError):
    """Two servers on one journal would submit twice."""


class JournalMisplaced(JournalError):
    """Network file systems do not keep SQLite's locks and syncs."""


class JournalUnreadable(JournalError):
    """Nothing is guessed from a journal that cannot be parsed."""


class JournalLost(JournalError):
    """A server without its records would submit its jobs again."""


class JournalFull(JournalError):
    """A write was refused; what was written before is unharmed."""

    retry = True
