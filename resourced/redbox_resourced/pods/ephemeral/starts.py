"""Has each ephemeral container of a pod begun, by a session in the pod's job, as the pod's own account.

Nothing is kept that a restart would lose: the runner begins one of a name once, its report shows what has
begun, and the pod's status what never will. A status that has ended is final, as the API server has it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from pydantic import ValidationError

from redbox_api.client import RedboxClient
from redbox_api.errors import NotAccepted, NotAllowed, RedboxError
from redbox_api.models import Job, Phase
from redbox_api.pod_parts import EphemeralProgram
from redbox_api.sessions.client import open_exec
from redbox_api.sessions.parts import ExecRequest, SessionStatus
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection
from redbox_resourced.pods.pod_references import ReferenceMissing, read_references
from redbox_resourced.pods.pod_request import claim_resolver
from redbox_resourced.pods.pod_view import BoundPod, EphemeralProblem
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.translation.containers.ephemeral import alone, ephemeral_program, needs_of
from redbox_resourced.translation.errors import UNSUPPORTED, Unsupported
from redbox_resourced.volumes.claim_path import ClaimRefused
from redbox_shared.backoff import Backoff
from redbox_shared.keyed_semaphores import FairSlots

BEGIN_S = 15.0
"""For a start, with its wait for a slot. Its pod is not reconciled meanwhile."""
AT_ONCE, OF_A_NAMESPACE = 16, 4
PAUSES = Backoff(1.0, 60.0)
CREATING, REFUSED = "ContainerCreating", "Refused"
"""The latter is the runner's word, too: nothing changes it."""


@dataclass(frozen=True)
class _Try:
    """The last one of a container that is not reported yet."""

    problem: EphemeralProblem | None
    """None: the runner has it, and its report follows."""
    count: int
    next_at: float

    @property
    def is_final(self) -> bool:
        return self.problem is not None and self.problem.is_final


@dataclass
class EphemeralStarts:
    """Of all pods."""

    objects: ObjectClient
    submitter: PodSubmitter
    now: Callable[[], float] = time.monotonic
    _tries: dict[str, dict[str, _Try]] = field(default_factory=dict)
    """By the pod's uid, by the container's name."""
    _slots: FairSlots = field(default_factory=lambda: FairSlots(AT_ONCE, OF_A_NAMESPACE))

    async def begin(
        self, pod: BoundPod, job: Job, connection: ClusterConnection
    ) -> tuple[BoundPod, float | None]:
        """The pod with what has kept each from its start; and when to try again."""
        due = names_due(pod, job)
        if not due or pod.details is None:
            self.forget(pod)
            return pod, None
        before = self._tries.get(pod.uid, {})
        tries = self._tries[pod.uid] = {name: before[name] for name in due if name in before}
        ends_at = self.now() + BEGIN_S
        for name in due:
            if self.now() >= ends_at:
                return self.shown(pod), 0.0
            last = tries.get(name)
            if last is None or not (last.is_final or self.now() < last.next_at):
                problem = await self._begin(pod, name, connection)
                count = last.count + 1 if last else 1
                tries[name] = _Try(problem, count, self.now() + PAUSES.pause_s(count))
        pauses = [max(0.0, each.next_at - self.now()) for each in tries.values() if not each.is_final]
        return self.shown(pod), min(pauses, default=None)

    def shown(self, pod: BoundPod) -> BoundPod:
        """With what has kept each container from its start so far."""
        if pod.details is None:
            return pod
        tries = self._tries.get(pod.uid, {})
        problems = {name: each.problem for name, each in tries.items() if each.problem is not None}
        return replace(pod, details=replace(pod.details, ephemeral_problems=problems))

    def forget(self, pod: BoundPod) -> None:
        self._tries.pop(pod.uid, None)

    async def _begin(
        self, pod: BoundPod, name: str, connection: ClusterConnection
    ) -> EphemeralProblem | None:
        try:
            async with asyncio.timeout(BEGIN_S), self._slots.of(pod.namespace):
                make = partial(self._program, pod, name, connection)
                async with self.submitter.made(pod, connection, make) as program:
                    status = await _begun(self.submitter.client_for(pod, connection), pod, program)
        except (Unsupported, ClaimRefused) as refusal:
            return EphemeralProblem(UNSUPPORTED, str(refusal), is_final=True)
        except (NotAllowed, NotAccepted) as refused:
            return EphemeralProblem(REFUSED, str(refused), is_final=True)
        except ReferenceMissing as missing:
            return EphemeralProblem(missing.reason, str(missing))
        except (RedboxError, ApiError, TimeoutError) as error:
            return EphemeralProblem(CREATING, str(error) or "red-box did not answer in time")
        return _problem_of(status)

    async def _program(self, pod: BoundPod, name: str, connection: ClusterConnection) -> EphemeralProgram:
        path = ResourcePath(kinds.POD, pod.name, pod.namespace)
        manifest: Object | None = await self.objects.get(path)
        if manifest is None or manifest["metadata"]["uid"] != pod.uid:
            raise ReferenceMissing(CREATING, "", "this pod does not exist any more")
        manifest = alone(manifest, name)
        references = await read_references(self.objects, needs_of(manifest), claim_resolver(pod, connection))
        users = connection.cluster.spec.pods.users
        try:
            return await asyncio.to_thread(ephemeral_program, manifest, references, users)
        except ValidationError as error:
            flaw = error.errors(include_url=False, include_input=False)[0]  # an input may be a secret
            raise Unsupported(f"{'.'.join(map(str, flaw['loc']))}: {flaw['msg']}") from None


def names_due(pod: BoundPod, job: Job) -> list[str]:
    """Those that have not begun, where the job's runner takes orders."""
    if pod.details is None or not pod.details.ephemeral_containers:
        return []
    if job.pod is None or job.pod.done or job.phase is not Phase.RUNNING:
        return []
    begun = {report.name for report in job.pod.containers} | pod.details.ephemeral_ends.keys()
    return [each.name for each in pod.details.ephemeral_containers if each.name not in begun]


def _problem_of(status: SessionStatus) -> EphemeralProblem | None:
    is_final = status.reason == REFUSED
    reason = REFUSED if is_final else CREATING
    return EphemeralProblem(reason, status.why, is_final) if status.why else None


async def _begun(client: RedboxClient, pod: BoundPod, program: EphemeralProgram) -> SessionStatus:
    request = ExecRequest(ephemeral=program, stdin=False)
    async with open_exec(client, pod.key, request, attempt=pod.attempt) as session:
        while not isinstance(event := await session.receive(), SessionStatus):
            pass
    return event
