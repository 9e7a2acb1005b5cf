"""The statuses of ephemeral containers. Pure.

One that has ended keeps its status: the API server lets it never be anything else.
"""

from __future__ import annotations

from redbox_api.models import FINAL_PHASES, Job
from redbox_kube.api.objects import Object
from redbox_resourced.pods.pod_status import LONGEST_MESSAGE
from redbox_resourced.pods.pod_view import EphemeralProblem, PodContainer, PodDetails
from redbox_resourced.pods.reported.container_states import NOT_STARTED, UNKNOWN, ephemeral_views

NOT_YET = EphemeralProblem("ContainerCreating", "it waits for the pod's job to run")
TOO_LATE = EphemeralProblem(UNKNOWN, "the pod's job had ended before it could start", is_final=True)


def ephemeral_statuses(details: PodDetails, job: Job | None, created_at: str) -> Object:
    """The part of a pod's status; none where it has no ephemeral container."""
    begun = {}
    if job is not None and job.pod is not None:
        reported = {report.name for report in job.pod.containers}
        views = ephemeral_views(details, job)
        begun = {view.container.name: view.status for view in views if view.container.name in reported}
    default = TOO_LATE if job is not None and job.phase in FINAL_PHASES else NOT_YET
    statuses = [
        details.ephemeral_ends.get(container.name)
        or begun.get(container.name)
        or _not_begun(container, details.ephemeral_problems.get(container.name, default), created_at)
        for container in details.ephemeral_containers
    ]
    return {"ephemeralContainerStatuses": statuses} if statuses else {}


def _not_begun(container: PodContainer, problem: EphemeralProblem, created_at: str) -> Object:
    message = problem.message[:LONGEST_MESSAGE]
    state: Object = {"waiting": {"reason": problem.reason, "message": message}}
    if problem.is_final:
        times = {"startedAt": created_at, "finishedAt": created_at}
        ended = {"exitCode": NOT_STARTED, "reason": problem.reason, "message": message}
        state = {"terminated": {**ended, **times}}
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
