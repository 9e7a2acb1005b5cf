"""Jobs that tests submit by the Slurm workload manager itself."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

from redbox.core.domain import UnixUser
from redbox.core.observations import Observation
from redbox.core.workload_manager import JobHandle, Submission, SubmitAccepted
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.text.states import has_ended
from redbox_api.models import JobRequest
from redbox_bed.hosts.host import Host
from tests.e2e.harness.login_node import ALICE

PATIENCE_S = 90.0


class Submitted:
    """A job that a test submitted."""

    def __init__(
        self, manager: SlurmManager, user: UnixUser, submission: Submission, accepted: SubmitAccepted
    ) -> None:
        self.manager = manager
        self.submission = submission
        self.accepted = accepted
        self.id = accepted.job_id
        self.handle = JobHandle(self.id, submission.mark, submission.job_name, user)

    async def until(self, what: Callable[[Observation], bool]) -> Observation:
        """Look until the job is so."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = (await self.manager.find_live([self.id])).jobs
                if found and what(found[0]):
                    return found[0]
                await asyncio.sleep(0.3)

    async def ended(self) -> Observation:
        return await self.until(lambda job: has_ended(job.state) and not job.pending_tasks)


def submission(**fields: object) -> Submission:
    token = secrets.token_hex(6)
    request = JobRequest.model_validate(fields)
    directory = request.working_directory or f"{{home}}/redbox-tests/{token}"
    return Submission(request, f"rb1.test-{token}", f"t{token}", directory)


async def submit(manager: SlurmManager, user: UnixUser = ALICE, **fields: object) -> Submitted:
    ready = submission(**fields)
    outcome = await manager.submit(user, ready)
    assert isinstance(outcome, SubmitAccepted), outcome
    return Submitted(manager, user, ready, outcome)


def output(login: Host, job: Submitted, name: str = "slurm-{id}.out") -> str:
    return login.read(f"{job.accepted.working_directory}/{name.format(id=job.id)}").decode()
