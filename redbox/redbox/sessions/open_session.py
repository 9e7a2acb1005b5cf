"""A command, or a connection, that runs; and a forward, which has any number of connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from typing import Any

from redbox.jobs.errors import JobConflict
from redbox.relay.program.frames import Buffer
from redbox.sessions.errors import SessionEnded, SessionsBusy
from redbox.sessions.relay_connection import RelayStreamHandle, StreamOutput, StreamStatus
from redbox.sessions.targets import SessionTarget, choose_target
from redbox.sessions.watches import IdleTimer, JobWatch
from redbox_api.sessions.parts import PortRequest

CLIENT_GONE = "the client has gone"
MOST_PLACES = 64
"""Ports of nodes in one forward: each has two lines in the audit."""
MOST_PROBES = 32
"""Of one forward at once: twice the ports of a SlurmJob, of which each is probed once at a time."""
OpenStream = Callable[[SessionTarget, Mapping[str, Any]], AbstractAsyncContextManager[RelayStreamHandle]]


@dataclass
class OpenSession:
    """A command, or a connection, that runs."""

    stream: RelayStreamHandle
    job: JobWatch
    idle: IdleTimer
    bytes_in: int = 0
    bytes_out: int = 0
    end: str = CLIENT_GONE

    async def receive(self) -> StreamOutput | StreamStatus:
        event = await self.stream.receive()
        if isinstance(event, StreamOutput):
            self.bytes_out += len(event.data)
            self.idle.touch()
        return event

    async def send(self, data: Buffer) -> None:
        self.bytes_in += len(data)
        self.idle.touch()
        await self.stream.send(data)


@dataclass
class PortUse:
    """What a forward has carried to and from one port of a node."""

    step_name: str = ""
    """Of the newest connection."""
    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass
class OpenForward:
    """Connections of one client to ports of one job, each on the node that it names."""

    job: JobWatch
    open_stream: OpenStream
    count_connection: Callable[[], AbstractContextManager[None]]
    """Entered for each connection; SessionsBusy if its user has too many."""
    new_timer: Callable[[], IdleTimer]
    on_first_use: Callable[[int, str], None]
    """Called with the port and the node once the first connection there is open; may refuse it."""
    uses: dict[tuple[int, str], PortUse] = field(default_factory=dict)
    end: str = CLIENT_GONE
    _probes: int = 0

    @property
    def bytes_in(self) -> int:
        return sum(use.bytes_in for use in self.uses.values())

    @property
    def bytes_out(self) -> int:
        return sum(use.bytes_out for use in self.uses.values())

    @asynccontextmanager
    async def connection(self, request: PortRequest) -> AsyncIterator[OpenSession]:
        """Connect as the job's user, as long as the block lasts.

        A probe leaves no trace and does not count as a connection: a user who has the most that may be open
        would have no Service that is ready.
        """
        target = self._target(request.node)
        document = {"kind": "port", "port": request.port, "probe": request.probe}
        with self._count_probe() if request.probe else self.count_connection():
            async with self.open_stream(target, document) as stream:
                use = PortUse() if request.probe else self._use(request.port, target.node)
                use.connections += 1
                session = OpenSession(stream, self.job, self.new_timer())
                use.step_name = stream.step_name
                try:
                    yield session
                finally:
                    use.bytes_in += session.bytes_in
                    use.bytes_out += session.bytes_out

    @contextmanager
    def _count_probe(self) -> Iterator[None]:
        if self._probes >= MOST_PROBES:
            raise SessionsBusy(f"A forward has at most {MOST_PROBES} probes at once.")
        self._probes += 1
        try:
            yield
        finally:
            self._probes -= 1

    def _target(self, node: str | None) -> SessionTarget:
        record = self.job.jobs.current(self.job.record.key)
        if record is None:
            raise JobConflict("The job has ended: there is nothing to enter.")
        return choose_target(record, self.job.workload.states, node, self.job.task)

    def _use(self, port: int, node: str) -> PortUse:
        if (use := self.uses.get((port, node))) is not None:
            return use
        if len(self.uses) >= MOST_PLACES:
            raise SessionEnded("TooManyRequests", f"A forward has at most {MOST_PLACES} ports of nodes.")
        self.on_first_use(port, node)
        use = self.uses[port, node] = PortUse()
        return use
