"""The private folder of a job: what only its user may read, and only until the job has ended.

It lies in the job's working directory and has mode 0700: a container's registry credentials, or all that a
pod's runner works from. The job removes the secrets itself once it needs them no longer; what remains of one
that ended before that is removed here.
"""

from __future__ import annotations

import asyncio
import hashlib
import posixpath

from redbox.agents.errors import SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import Submission

CREDENTIALS = "registry.sh"
REMOVE_S = 5.0


def private_folder(working_directory: str, mark: str) -> str:
    """A function of the job's mark, so that the folder is found again when the job has ended."""
    key = hashlib.sha256(mark.encode()).hexdigest()[:12]
    return posixpath.join(working_directory, f".redbox-{key}")


def private_folder_of(submission: Submission) -> str | None:
    """None where the request has nothing to hide."""
    request = submission.request
    if request.pod is None and (request.container is None or request.container.registry is None):
        return None
    return private_folder(submission.working_directory, submission.mark)


def credentials_path_of(submission: Submission) -> str | None:
    """None where the request is not of a container with credentials."""
    folder = private_folder_of(submission)
    if folder is None or submission.request.container is None:
        return None
    return posixpath.join(folder, CREDENTIALS)


async def remove_private_folder(agents: AgentPool, user: UnixUser, folder: str) -> None:
    async with asyncio.timeout(REMOVE_S):
        agent = await agents.agent(user, "files")
        try:
            await agent.remove(folder, recursive=True)
        except SystemCallFailed as fault:
            if not fault.is_missing:
                raise
