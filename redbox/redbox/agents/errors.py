"""Errors of agents.

    AgentError                      retry: whether a retry is safe and may succeed
    ├── AgentUnavailable            there is no agent for this user now; retry_after seconds
    │   └── LoginDenied             sshd has refused a good key: it counts as a failed login
    ├── AgentRefused                there is no agent for this user until an administrator changes something
    │   └── UserRefused             sudo or sshd refuses this user, as while a directory of users is away
    ├── AgentDied                   the agent ended, or broke the protocol, during an operation
    ├── AgentTimeout                no answer within the deadline; the operation may still take effect
    ├── CommandDetached             a recorded command continues without its caller: use `recall`
    └── RequestFailed               the agent answered with an error
        └── SystemCallFailed        the kernel's error, with errno and path

`FrameError` stays within this package: an agent that causes one is dead (AgentDied).
"""

from __future__ import annotations

import errno

PASSING = frozenset({errno.EAGAIN, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE})
"""What a network file system answers while its server is away, or another host has replaced a file."""


class AgentError(Exception):
    """Base of all errors of this package."""

    def __init__(self, detail: str, *, retry: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry = retry


class AgentUnavailable(AgentError):
    """There is no agent for this user at present. Nothing was done."""

    def __init__(self, detail: str, *, retry_after: float = 5.0) -> None:
        super().__init__(detail, retry=True)
        self.retry_after = retry_after


class LoginDenied(AgentUnavailable):
    """sshd ended a login after the key, by a rule that may change: no logins during a maintenance."""


class AgentRefused(AgentError):
    """There is no agent for this user, and a retry does not change that."""


class UserRefused(AgentRefused):
    """Sudo or sshd refuses this user: an administrator's will, or a directory of users that is away."""


class AgentDied(AgentError):
    """The agent is gone; `retry`: its operation changes nothing, so that it may be repeated."""


class AgentTimeout(AgentError):
    """No answer within the deadline; `retry` as for AgentDied."""


class CommandDetached(AgentError):
    """A recorded command outlives its caller's deadline; `recall` returns its outcome."""

    def __init__(self, keep: str) -> None:
        super().__init__(f"{keep} continues without its caller")
        self.keep = keep


class RequestFailed(AgentError):
    """The agent cannot perform the operation, and a retry does not change that."""


class SystemCallFailed(RequestFailed):
    """The kernel's error: the user's own permissions, a missing file, a full disk."""

    def __init__(self, number: int, strerror: str, path: str) -> None:
        super().__init__(f"{path}: {strerror}" if path else strerror)
        self.errno = number
        self.strerror = strerror
        self.path = path

    @property
    def is_missing(self) -> bool:
        return self.errno in (errno.ENOENT, errno.ENOTDIR)

    @property
    def is_passing(self) -> bool:
        """Whether a retry is right: it says nothing of the file."""
        return self.errno in PASSING

    @property
    def is_denied(self) -> bool:
        return self.errno in (errno.EACCES, errno.EPERM)


class FrameError(Exception):
    """The peer broke the protocol."""
