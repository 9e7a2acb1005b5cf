"""Files read by the agent of the job's user: the user's own permissions apply.

A file on a local file system is opened again every few seconds only; on a network one, whenever the reader
needs the writes of other hosts (close-to-open consistency).
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field

from redbox.agents.errors import AgentError, AgentRefused, RequestFailed, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import ReadPrecondition
from redbox.core.domain import UnixUser
from redbox.logs.interfaces import (
    FileChunk,
    LogFileFailing,
    LogFileMissing,
    LogFileNotVisible,
    LogFileStat,
    LogFileUnavailable,
    LogFileUnreadable,
)

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs"})
REUSE_LOCAL_S = 5.0
REUSE_NETWORK_S = 60.0  # between two opens that the reader requests
READ_S = 20.0
MOST_DEVICES = 64
CONCURRENT_READS = 32  # of the requests that one agent takes; the rest are for other work with files


@dataclass
class AgentFiles:
    """The files of one user, for all their readers."""

    pool: AgentPool
    user: UnixUser
    _is_network: dict[int, bool] = field(default_factory=dict)  # by device
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_READS))

    async def read(
        self,
        path: str,
        offset: int,
        limit: int,
        *,
        expect: ReadPrecondition | None = None,
        fresh: bool = False,
    ) -> FileChunk:
        """Read in one round trip, and one more for the first file of a file system.

        Of a file other than `expect` no byte is returned. `fresh` opens the file again through its directory,
        which a network file system requires.
        """
        async with self._slots:
            is_network = expect is None or self._is_network.get(expect.device, True)
            reuse_s = 0.0 if fresh else REUSE_NETWORK_S if is_network else REUSE_LOCAL_S
            try:
                agent = await self.pool.agent(self.user, "files")
                piece = await agent.read(
                    path, offset=offset, limit=limit, expect=expect, reuse_s=reuse_s, deadline=READ_S
                )
                facts = piece.facts
                if facts.device not in self._is_network:
                    status = await agent.stat(path, deadline=READ_S)
                    if len(self._is_network) >= MOST_DEVICES:  # a user's own program may name any
                        self._is_network.clear()
                    self._is_network[status.device] = status.file_system not in LOCAL
            except SystemCallFailed as fault:
                raise _log_error(fault) from fault
            except RequestFailed as error:
                raise LogFileUnreadable(f"{path}: {error}") from error
            except AgentError as error:
                kind = LogFileFailing if isinstance(error, AgentRefused) else LogFileUnavailable
                raise kind(f"{path} cannot be read now: {error}") from error
            is_network = self._is_network.get(facts.device, True)
        stat = LogFileStat(facts.device, facts.inode, facts.size, facts.modified_ns, is_network)
        return FileChunk(stat, piece.data if piece.same else b"", replaced=not piece.same)


def _log_error(fault: SystemCallFailed) -> LogFileMissing | LogFileUnreadable | LogFileUnavailable:
    if fault.errno == errno.EAGAIN:
        return LogFileNotVisible(str(fault))
    if fault.is_passing:
        kind = LogFileFailing if fault.errno == errno.EIO else LogFileUnavailable
        return kind(f"{fault.path} cannot be read now: {fault.strerror}")
    if fault.is_missing:
        return LogFileMissing(str(fault))
    return LogFileUnreadable(f"{fault.path}: {fault.strerror}, as the user of the job")
