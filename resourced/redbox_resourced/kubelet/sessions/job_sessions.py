"""The way into one pod's job: behind these protocols, what SPDY carries does not depend on red-box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from redbox_api.client import RedboxClient
from redbox_api.sessions.client import SessionData, open_connection, open_session
from redbox_api.sessions.parts import ExecRequest, SessionStatus, TerminalSize


class RunningSession(Protocol):
    """A command in the job, or a connection to one of its ports; `receive` says how it ended."""

    async def start(self, request: ExecRequest) -> None: ...

    async def send(self, data: bytes) -> None: ...

    async def close_input(self) -> None: ...

    async def resize(self, size: TerminalSize) -> None: ...

    async def receive(self) -> SessionData | SessionStatus: ...

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
        return await open_connection(self.client, self.key, port, attempt=self.attempt)
