"""The file with a job's registry credentials: its path, and its removal when the job will not read it.

It has mode 0600, in a directory of the job's own of mode 0700; both are the user's. The job removes it once
the image is pulled; what remains of a job that ended before that is removed here.
"""

from __future__ import annotations

import asyncio
import hashlib
import posixpath

from redbox.agents.errors import SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import Submission

FILE = "registry.sh"
REMOVE_S = 5.0


def credentials_path(working_directory: str, mark: str) -> str:
    """A function of the job's mark, so that the file is found again when the job has ended."""
    key = hashlib.sha256(mark.encode()).hexdigest()[:12]
    return posixpath.join(working_directory, f".redbox-{key}", FILE)


def credentials_path_of(submission: Submission) -> str | None:
    """None where the request has no credentials."""
    container = submission.request.container
    if container is None or container.registry is None:
        return None
    return credentials_path(submission.working_directory, submission.mark)


async def remove_credentials(agents: AgentPool, user: UnixUser, path: str) -> None:
    async with asyncio.timeout(REMOVE_S):
        agent = await agents.agent(user, "files")
        try:
            await agent.remove(posixpath.dirname(path), recursive=True)
        except SystemCallFailed as fault:
            if not fault.is_missing:
                raise
