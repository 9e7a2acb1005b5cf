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
        begun = {view.container.name: view for view in ephemeral_views(details, job)}
        begun = {name: view for name, view in begun.items() if name in reported}
    default = TOO_LATE if job is not None and job.phase in FINAL_PHASES else NOT_YET
    statuses = []
    for container in details.ephemeral_containers:
        view, end = begun.get(container.name), details.ephemeral_ends.get(container.name)
        if view is not None and (end is None or view.exit_code is not None):
            statuses.append(view.status)
        elif end is not None:
            statuses.append(_row(container, {"terminated": end}))
        else:
            problem = details.ephemeral_problems.get(container.name, default)
            statuses.append(_row(container, _not_begun(problem, created_at)))
    return {"ephemeralContainerStatuses": statuses} if statuses else {}


def _not_begun(problem: EphemeralProblem, created_at: str) -> Object:
    words = {"reason": problem.reason, "message": problem.message[:LONGEST_MESSAGE]}
    if not problem.is_final:
        return {"waiting": words}
    times = {"startedAt": created_at, "finishedAt": created_at}
    return {"terminated": {"exitCode": NOT_STARTED, **words, **times}}


def _row(container: PodContainer, state: Object) -> Object:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
