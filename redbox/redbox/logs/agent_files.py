"""Files read by the user's own agent: what it may reach is what the user may reach.

A file on a local file system is opened anew every few seconds only; on a network one, whenever the reader
wants to see what other hosts wrote (close-to-open).
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError, RequestFailed, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.protocol import answers
from redbox.core.domain import UnixUser
from redbox.logs.interfaces import Expected, Facts, NotReadable, NotThere, NotYetShown, OutOfReach, Piece

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs"})
REUSE_LOCAL_S = 5.0
REUSE_NETWORK_S = 60.0  # between two opens that the reader asks for
READ_S = 20.0
READS_AT_ONCE = 32  # of the requests that one agent takes; the rest are for other work with files


@dataclass
class AgentFiles:
    """One user's files, for all who read them."""

    pool: AgentPool
    user: UnixUser
    _network: dict[int, bool] = field(default_factory=dict)  # by device
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_AT_ONCE))

    async def read(
        self, path: str, offset: int, limit: int, *, expected: Expected | None = None, fresh: bool = False
    ) -> Piece:
        """One round trip, and one more for the first file of a file system."""
        async with self._turns:
            return await self._read(path, offset, limit, expected=expected, fresh=fresh)

    async def _read(
        self, path: str, offset: int, limit: int, *, expected: Expected | None, fresh: bool
    ) -> Piece:
        expect = (
            answers.ReadPrecondition(expected.device, expected.inode, expected.tail_hash)
            if expected
            else None
        )
        network = self._network.get(expected.device, True) if expected else True
        reuse_s = 0.0 if fresh else REUSE_NETWORK_S if network else REUSE_LOCAL_S
        agent = await self._agent(path)
        try:
            piece = await agent.read(
                path, offset=offset, limit=limit, expect=expect, reuse_s=reuse_s, deadline=READ_S
            )
            facts = piece.facts
            if facts.device not in self._network:
                status = await agent.stat(path, deadline=READ_S)
                self._network[status.device] = status.file_system not in LOCAL
        except SystemCallFailed as fault:
            raise _log_error(fault) from fault
        except RequestFailed as error:
            raise NotReadable(f"{path}: {error}") from error
        except AgentError as error:
            raise OutOfReach(f"{path} cannot be read now: {error}") from error
        network = self._network.get(facts.device, True)
        seen = Facts(facts.device, facts.inode, facts.size, facts.modified_ns, network)
        return Piece(seen, piece.data if piece.same else b"", another=not piece.same)

    async def _agent(self, path: str) -> AgentClient:
        try:
            return await self.pool.agent(self.user, "files")
        except AgentError as error:
            raise OutOfReach(f"{path} cannot be read now: {error}") from error


def _log_error(fault: SystemCallFailed) -> NotThere | NotReadable:
    if fault.errno == errno.EAGAIN:
        return NotYetShown(str(fault))
    if fault.is_missing:
        return NotThere(str(fault))
    return NotReadable(f"{fault.path}: {fault.strerror}, as the user whose job it is")
