"""What can go wrong with agents.

    AgentError                      retry: whether trying again may help and is safe
    ├── AgentUnavailable            no agent for this user now; retry_after seconds
    ├── AgentRefused                no agent for this user until an administrator changes something: says what
    ├── AgentDied                   the agent ended, or broke the protocol, in the middle of something
    ├── AgentSilent                 no answer within the deadline; what was asked may still happen
    ├── Detached                    a kept command goes on without its caller: `recall` it
    └── RequestFailed               the agent answered, and what it says is no
        └── SystemFault             the kernel's own refusal, with errno and path

`FrameError` is of the frames: it never leaves this package, a peer that causes one has died.
"""

from __future__ import annotations

import errno


class AgentError(Exception):
    """Base of all errors of this package."""

    retry = False

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class AgentUnavailable(AgentError):
    """No agent can be had for this user now. Nothing was done."""

    retry = True

    def __init__(self, detail: str, *, retry_after: float = 5.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class AgentRefused(AgentError):
    """No agent can be had for this user, and asking again will not change that."""


class AgentDied(AgentError):
    """The agent is gone; `retry`: what it was doing changes nothing, and may simply be asked again."""

    def __init__(self, detail: str, *, doing: str, retry: bool) -> None:
        super().__init__(detail)
        self.doing = doing
        self.retry = retry


class AgentTimeout(AgentError):
    """No answer came in time; `retry` as for AgentDied."""

    def __init__(self, detail: str, *, doing: str, retry: bool) -> None:
        super().__init__(detail)
        self.doing = doing
        self.retry = retry


class CommandDetached(AgentError):
    """A kept command has not ended in its caller's time: it goes on, and `recall` tells its outcome."""

    def __init__(self, keep: str) -> None:
        super().__init__(f"{keep} goes on without its caller")
        self.keep = keep


class RequestFailed(AgentError):
    """The agent could not do it, and would not be able to if asked again."""


class SystemCallFailed(RequestFailed):
    """The kernel refused: the user's own permission error, a missing file, a full disk."""

    def __init__(self, number: int, words: str, path: str) -> None:
        super().__init__(f"{path}: {words}" if path else words)
        self.errno = number
        self.words = words
        self.path = path

    @property
    def is_missing(self) -> bool:
        return self.errno in (errno.ENOENT, errno.ENOTDIR)

    @property
    def is_denied(self) -> bool:
        return self.errno in (errno.EACCES, errno.EPERM)


class FrameError(Exception):
    """The peer sent what no agent sends."""
