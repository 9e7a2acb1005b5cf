"""Phase and conditions of a pod from its containers, by the rules of kubelets. Pure.

Rules of Kubernetes 1.34, pkg/kubelet: `getPhase`, and `status/generate.go` for the conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redbox_kube.api.objects import Object
from redbox_resourced.pods.pod_view import ENDED, BoundPod, PodDetails, ShownCondition
from redbox_resourced.pods.reported.container_states import ContainerView, names_of


def phase_of(views: Sequence[ContainerView], restart_policy: str, *, is_over: bool) -> str:
    """`is_over`: no container starts any more, whatever the restart policy is."""
    main = [view for view in views if not view.is_init]
    if is_over:
        succeeded = bool(main) and not _failed_init(views) and all(view.exit_code == 0 for view in main)
        return "Succeeded" if succeeded else "Failed"
    if _failed_init(views) and restart_policy == "Never":
        return "Failed"
    if not _is_initialized(views) or any(view.last_end is None and not view.is_running for view in main):
        return "Pending"
    is_waiting = any(view.report.state.waiting is not None for view in main)  # for its next start
    if restart_policy == "Always" or is_waiting or any(view.is_running for view in main):
        return "Running"
    succeeded = all(view.exit_code == 0 for view in main)
    if not succeeded and restart_policy == "OnFailure":
        return "Running"
    return "Succeeded" if succeeded else "Failed"


def later_phase(old: str, new: str) -> str:
    """The phase of a pod never goes back."""
    if old in ENDED:
        return old
    return "Running" if (old, new) == ("Running", "Pending") else new


def conditions_of(
    pod: BoundPod, details: PodDetails, views: Sequence[ContainerView], phase: str, *, runs: bool, at: str
) -> list[Object]:
    """`runs`: the runner is there. `at` is the time of each condition that changes now."""
    initialized = _initialized(views, phase)
    containers_ready = _containers_ready(views, phase)
    ready = _ready(containers_ready, details.readiness_gates, details.conditions)
    prepared: Object = {"status": _word(holds=runs and phase not in ENDED)}
    decided = {
        "PodReadyToStartContainers": prepared,
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": containers_ready,
    }
    return [
        {"type": name, **condition, "lastTransitionTime": since(pod, details, name, condition["status"], at)}
        for name, condition in decided.items()
    ]


def since(pod: BoundPod, details: PodDetails, name: str, status: str, at: str) -> str:
    """Since when the condition has this status: as the pod shows it, where it has not changed."""
    shown = details.conditions.get(name)
    unchanged = shown is not None and shown.status == status
    return (shown.since if shown is not None and unchanged else at) or pod.created_at


def _initialized(views: Sequence[ContainerView], phase: str) -> Object:
    if phase == "Succeeded":
        return {"status": "True", "reason": "PodCompleted"}
    if _is_initialized(views):
        return {"status": "True"}
    incomplete = [view for view in views if view.is_init and not _has_initialized(view)]
    message = f"containers with incomplete status: {names_of(incomplete)}"
    return {"status": "False", "reason": "ContainersNotInitialized", "message": message}


def _containers_ready(views: Sequence[ContainerView], phase: str) -> Object:
    if phase in ENDED:
        return {"status": "False", "reason": "PodCompleted" if phase == "Succeeded" else "PodFailed"}
    unready = [view for view in views if not view.runs_once and not view.is_ready]
    if not unready:
        return {"status": "True"}
    message = f"containers with unready status: {names_of(unready)}"
    return {"status": "False", "reason": "ContainersNotReady", "message": message}


def _ready(
    containers_ready: Object, gates: Sequence[str], conditions: Mapping[str, ShownCondition]
) -> Object:
    if containers_ready["status"] != "True":
        return containers_ready
    problems = [_gate_problem(gate, conditions.get(gate)) for gate in gates]
    if not any(problems):
        return containers_ready
    message = ", ".join(filter(None, problems))
    return {"status": "False", "reason": "ReadinessGatesNotReady", "message": message}


def _gate_problem(gate: str, condition: ShownCondition | None) -> str:
    if condition is None:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    if condition.status != "True":
        return f'the status of pod readiness gate "{gate}" is not "True", but {condition.status}'
    return ""


def _failed_init(views: Sequence[ContainerView]) -> bool:
    ends = [view.last_end for view in views if view.runs_once]
    return any(end is not None and end.exit_code != 0 for end in ends)


def _is_initialized(views: Sequence[ContainerView]) -> bool:
    """Once a main container has started, it stays so, although a sidecar may start again."""
    main = [view for view in views if not view.is_init]
    has_begun = any(view.is_running or view.last_end is not None for view in main)
    return has_begun or all(_has_initialized(view) for view in views if view.is_init)


def _has_initialized(view: ContainerView) -> bool:
    return view.exit_code == 0 if view.runs_once else view.is_started


def _word(*, holds: bool) -> str:
    return "True" if holds else "False"
