"""Where a job's registry credentials lie, and taking them away from a job that will not read them.

A file of mode 0600 in a directory of the job's own, of mode 0700, both the user's. The job removes it once
the image is there; what a job has left that ended before is removed here.
"""

from __future__ import annotations

import asyncio
import hashlib
import posixpath

from redbox.agents.errors import SystemFault
from redbox.core.domain import UnixUser
from redbox.slurm.command_runner import SlurmAgents

FILE = "registry.sh"
REMOVE_S = 5.0


def credentials_path(working_directory: str, mark: str) -> str:
    """Known from the job's mark alone, so that it is found again when the job has ended."""
    key = hashlib.sha256(mark.encode()).hexdigest()[:12]
    return posixpath.join(working_directory, f".redbox-{key}", FILE)


async def remove_credentials(agents: SlurmAgents, user: UnixUser, path: str) -> None:
    """Remove them if they are there."""
    async with asyncio.timeout(REMOVE_S):
        agent = await agents.agent(user, "files")
        try:
            await agent.remove(posixpath.dirname(path), recursive=True)
        except SystemFault as fault:
            if not fault.is_missing:
                raise
