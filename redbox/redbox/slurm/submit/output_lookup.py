"""Which output files exist, as the jobs' user sees them on the login node.

A file that is found exists. One that is not found is absent only where the nodes write what the login node
sees: on a network file system, or below the user's home, which both have. Elsewhere a node may have a
directory of its own by that path, as /tmp, and nothing follows.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import translate

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError
from redbox.agents.pool import AgentPool
from redbox.core.domain import UnixUser
from redbox.core.output_patterns import output_glob
from redbox.core.workload_manager import JobOutput, WorkloadManagerError

NETWORK = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "panfs", "wekafs", "pvfs2", "afs"}
    | {"orangefs", "glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs"}
)
PATTERNS_AT_ONCE = 100
FOUND_AT_MOST = 10_000


class OutputLookup:
    """Looks for output files through the agents of their users."""

    def __init__(self, agents: AgentPool) -> None:
        self._agents = agents

    async def find(self, user: UnixUser, outputs: Collection[JobOutput]) -> dict[JobOutput, bool]:
        """Whether each exists, all of one user and directory; what cannot be found out is left out.

        By listings: network file systems cache for a while that a single name was missing.
        """
        found: dict[JobOutput, bool] = {}
        try:
            agent = await self._agents.agent(user, "files")
            for part in _parts([*outputs]):
                found |= await _list(agent, part)
            for directory in {output_glob(output)[0] for output, exists in found.items() if not exists}:
                if not await _is_shared(agent, directory):
                    return {output: exists for output, exists in found.items() if exists}
        except AgentError as fault:  # a directory that is missing shows nothing
            raise WorkloadManagerError(str(fault)) from fault
        return found


async def _is_shared(agent: AgentClient, directory: str) -> bool:
    """Whether the nodes see this directory too, as far as that can be known here."""
    status = await agent.stat(directory)
    if status.file_system in NETWORK:
        return True
    home = await agent.stat(home_of(agent))
    if not status.real_path or not home.real_path or home.real_path == "/":
        return False
    is_below = posixpath.commonpath([status.real_path, home.real_path]) == home.real_path
    return is_below and status.device == home.device


def home_of(agent: AgentClient) -> str:
    """The home of the agent's account."""
    return agent.hello.home or "/"


def _parts(outputs: Sequence[JobOutput]) -> Iterator[Sequence[JobOutput]]:
    for start in range(0, len(outputs), PATTERNS_AT_ONCE):
        yield outputs[start : start + PATTERNS_AT_ONCE]


async def _list(agent: AgentClient, outputs: Sequence[JobOutput]) -> dict[JobOutput, bool]:
    """One listing for all; if it has more than it may show, absence follows from nothing."""
    globs = {output: output_glob(output) for output in outputs}
    (directory,) = {directory for directory, _ in globs.values()}
    patterns = dict.fromkeys(pattern for _, pattern in globs.values())
    result = await agent.glob(directory, [*patterns], limit=FOUND_AT_MOST)
    paths = [match.path for match in result.found]
    exist = {output: _matches(pattern, paths) for output, (_, pattern) in globs.items()}
    return {output: exists for output, exists in exist.items() if exists or not result.truncated}


def _matches(pattern: str, paths: Sequence[str]) -> bool:
    matches = re.compile(translate(pattern)).match
    return any(map(matches, paths))
