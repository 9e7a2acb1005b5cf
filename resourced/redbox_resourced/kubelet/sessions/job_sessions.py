"""The way into one pod's job: behind these protocols, what SPDY carries does not depend on red-box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from redbox_api.client import RedboxClient
from redbox_api.sessions.contract import SessionCommand, SessionOutput, SessionStatus, TerminalSize
from redbox_api.sessions.job_session import open_port, open_session


class RunningSession(Protocol):
    """A command in the job, or a connection to one of its ports. Each method raises RedboxError."""

    async def start(self, command: SessionCommand) -> None: ...

    async def write(self, data: bytes) -> None: ...

    async def end_input(self) -> None: ...

    async def resize(self, size: TerminalSize) -> None: ...

    async def receive(self) -> SessionOutput | SessionStatus: ...

    async def close(self) -> None: ...


class JobSessions(Protocol):
    """Opens sessions in one job. Each method raises RedboxError."""

    async def open_session(self) -> RunningSession: ...

    async def open_port(self, port: int) -> RunningSession: ...


@dataclass(frozen=True)
class RedboxSessions:
    """Of a pod's job, as the pod's own account: no token of resourced itself opens a session."""

    client: RedboxClient
    key: str
    attempt: int

    async def open_session(self) -> RunningSession:
        return await open_session(self.client, self.key, attempt=self.attempt)

    async def open_port(self, port: int) -> RunningSession:
        return await open_port(self.client, self.key, port, attempt=self.attempt)
