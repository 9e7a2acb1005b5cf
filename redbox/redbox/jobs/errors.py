"""What `jobs` can say no with.

JobsError
├── NoSuchJob           there is none, or it is somebody else's (the same answer for both)
├── Forbidden           the caller's role or rule does not allow it
├── Conflict            the key is taken by another body, or the job is not in a state for this
│   └── Tombstoned      the key was cancelled before its job was submitted
├── NotAcceptable       the request can never work as it is
│   └── RefusedBySlurm  in the workload manager's own words
├── Later               nothing is wrong with the request
│   ├── Busy            the outcome is not known yet, or Slurm or the journal cannot take it now
│   └── TooMany         this caller asks too often, or keeps too much
├── Gone                a watch's revision is not known any more: list, and watch from there
└── JournalError
    ├── JournalInUse    another red-box has it open
    ├── JournalMisplaced  it is on a file system that cannot keep promises
    ├── JournalLost       it is new, and jobs in Slurm show that there was another
    ├── JournalUnreadable it is damaged, or of a newer red-box
    └── JournalFull     nothing can be written now; reading goes on
"""

from __future__ import annotations


class JobsError(Exception):
    """Base of what `jobs` refuses with; `retry` says whether the same request may succeed later."""

    retry = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NoSuchJob(JobsError):
    """Also for jobs of others: nobody learns that they exist."""


class Forbidden(JobsError):
    """Known, and not allowed."""


class Conflict(JobsError):
    """The key or the job is in the way."""


class Tombstoned(Conflict):
    """Deleted before it came to be; this key and attempt is never submitted."""


class NotAcceptable(JobsError):
    """Trying again changes nothing."""


class RefusedBySlurm(NotAcceptable):
    """The workload manager's words."""


class Later(JobsError):
    """Trying again after `retry_after` seconds is right."""

    retry = True

    def __init__(self, detail: str, *, retry_after: float = 2.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class Busy(Later):
    """503."""


class TooMany(Later):
    """429."""


class Gone(JobsError):
    """410."""


class JournalError(JobsError):
    """The journal cannot be used."""


class JournalInUse(JournalError):
    """Two servers on one journal would submit twice."""


class JournalMisplaced(JournalError):
    """Network file systems do not keep SQLite's locks and syncs."""


class JournalUnreadable(JournalError):
    """Nothing is guessed from a journal that is not understood."""


class JournalLost(JournalError):
    """A server that knew none of its jobs would submit them again."""


class JournalFull(JournalError):
    """A write was refused; what was written before is unharmed."""

    retry = True
