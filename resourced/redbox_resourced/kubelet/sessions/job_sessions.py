"""The way into one pod's job: behind these protocols, what SPDY carries does not depend on red-box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from redbox_api.client import RedboxClient
from redbox_api.sessions.client import SessionData, open_session
from redbox_api.sessions.forward import begin_forward
from redbox_api.sessions.parts import ExecRequest, SessionStatus, TerminalSize


class RunningConnection(Protocol):
    """A connection to a port of the job; `receive` says how it ended."""

    async def send(self, data: bytes) -> None: ...

    async def close_input(self) -> None: ...

    async def receive(self) -> SessionData | SessionStatus: ...

    async def close(self) -> None: ...


class RunningSession(RunningConnection, Protocol):
    """A command in the job."""

    async def start(self, request: ExecRequest) -> None: ...

    async def resize(self, size: TerminalSize) -> None: ...


class RunningForward(Protocol):
    """Any number of connections to ports of the job, until its `failure`."""

    @property
    def failure(self) -> SessionStatus | None: ...

    async def connect(self, port: int) -> RunningConnection: ...

    async def close(self) -> None: ...


class JobSessions(Protocol):
    """Opens sessions in one job. Each method raises RedboxError."""

    async def open_session(self) -> RunningSession: ...

    async def begin_forward(self) -> RunningForward: ...


@dataclass(frozen=True)
class RedboxSessions:
    """Of a pod's job, as the pod's own account: no token of resourced itself opens a session."""

    client: RedboxClient
    key: str
    attempt: int

    async def open_session(self) -> RunningSession:
        return await open_session(self.client, self.key, attempt=self.attempt)

    async def begin_forward(self) -> RunningForward:
        return await begin_forward(self.client, self.key, attempt=self.attempt)
