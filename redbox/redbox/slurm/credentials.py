"""Where a job's registry credentials lie, and taking them away from a job that will not read them.

A file of mode 0600 in a directory of the job's own, of mode 0700, both the user's. The job removes it once
the image is there; of a job that never starts it is removed here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import posixpath

from redbox.agents.errors import AgentError
from redbox.domain import UnixUser
from redbox.slurm.calls import Agents

FILE = "registry.sh"
REMOVE_S = 5.0


def credentials_path(working_directory: str, mark: str) -> str:
    """Known from the job's mark alone, so that it is found again when the job is cancelled."""
    key = hashlib.sha256(mark.encode()).hexdigest()[:12]
    return posixpath.join(working_directory, f".redbox-{key}", FILE)


async def remove_credentials(agents: Agents, user: UnixUser, path: str) -> None:
    """Remove them if they are there. If that fails they stay where only the user can read them."""
    with contextlib.suppress(AgentError, TimeoutError):
        async with asyncio.timeout(REMOVE_S):
            agent = await agents.agent(user, "files")
            await agent.remove(posixpath.dirname(path), recursive=True)
