"""Where a session goes: job id and node from a job's record, or the sentence that refuses it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from redbox.core.observations import TaskObservation
from redbox.core.workload_manager import JobStates
from redbox.jobs.errors import JobConflict, JobsError, NotAcceptable
from redbox.jobs.record.record import JobRecord
from redbox_api.hostlists import expand
from redbox_api.models import FINAL_PHASES, Phase

ENDING = frozenset({"COMPLETING", "STAGE_OUT", "SIGNALING"})


@dataclass(frozen=True, slots=True)
class SessionTarget:
    """A running job, or one task of an array, and a node of it; "": the one that Slurm chooses.

    The components of het job 7 are 7+0, 7+1 and so on.
    """

    job_id: str
    node: str
    run: int


def check_running(record: JobRecord, states: JobStates) -> None:
    """Raise JobConflict unless the job runs, or a task of it, and is to go on."""
    if record.cancel_requested and not record.final:
        raise JobConflict("The job is ending: no session can begin in it.")
    _check_lives(record, states)


def _check_lives(record: JobRecord, states: JobStates) -> None:
    if record.final:
        raise JobConflict(
            f"The job has ended ({record.status.state or record.phase}): there is nothing to enter."
        )
    if record.ending_since is not None:
        raise JobConflict("The job is ending: no session can begin in it.")
    if not any(states.phase_of(task.state) is Phase.RUNNING for task in record.status.tasks):
        _check_state(record.status.state, record.phase, states, "The job")


def choose_target(record: JobRecord, states: JobStates, node: str | None, task: int | None) -> SessionTarget:
    """The target of a session; JobConflict or NotAcceptable for what cannot be."""
    check_running(record, states)
    target = _running_part(record, states, task)
    if record.status.array_size:
        return replace(target, node=node or "")
    nodes = expand(record.status.nodes)
    if node is not None and node not in nodes:
        raise NotAcceptable(
            f"Node {node} is not one of the job's nodes: {', '.join(nodes[:20]) or 'none yet'}."
        )
    node = node or (nodes[0] if nodes else "")
    return replace(target, job_id=target.job_id + _component_suffix(record, node), node=node)


def has_one_node(record: JobRecord) -> bool:
    """Whether a session can be on one node only, without listing those of a large job."""
    nodes = record.status.nodes
    return bool(nodes) and not record.status.array_size and not {",", "["} & set(nodes)


def _component_suffix(record: JobRecord, node: str) -> str:
    """Of the first component of a het job that has this node: srun rejects a step that names none."""
    components = record.status.component_nodes
    offset = next((offset for offset, nodes in enumerate(components) if node in expand(nodes)), 0)
    return f"+{offset}" if components else ""


def still_runs(record: JobRecord | None, target: SessionTarget, states: JobStates, task: int | None) -> bool:
    """Whether the job of an open session runs on, in the same run; if it is cancelled, until its end."""
    if record is None:
        return False
    try:
        return _running_part(record, states, task).run == target.run
    except JobsError:
        return _shown(record, states, task)[0] in ENDING or is_suspended(record, states, task)


def is_ending(record: JobRecord | None, states: JobStates, task: int | None) -> bool:
    """Whether Slurm ends it, and with it its steps."""
    return record is not None and _shown(record, states, task)[0] in ENDING


def is_suspended(record: JobRecord | None, states: JobStates, task: int | None) -> bool:
    """Whether its processes stand still: of a job that is held between two runs none is left."""
    if record is None:
        return False
    state, phase = _shown(record, states, task)
    return phase is Phase.SUSPENDED and not states.has_not_begun(state)


def _shown(record: JobRecord, states: JobStates, task: int | None) -> tuple[str, Phase | None]:
    """State and phase of the job, or of the task that is meant; none of a task that Slurm no longer shows."""
    if task is None:
        return record.status.state, record.phase
    chosen = record.status.task(task)
    return (chosen.state, states.phase_of(chosen.state)) if chosen is not None else ("", None)


def _running_part(record: JobRecord, states: JobStates, task: int | None) -> SessionTarget:
    """The job, or the task of an array, without a node: of a large job these take milliseconds to list."""
    _check_lives(record, states)
    if record.job_id is None:
        raise JobConflict("The job is still being submitted: it has no node yet.")
    if record.status.array_size:
        chosen = _task(record, task)
        _check_state(chosen.state, states.phase_of(chosen.state), states, f"Task {chosen.index}")
        return SessionTarget(chosen.job_id, "", chosen.restarts + 1)
    if task is not None:
        raise NotAcceptable("The job is not an array: leave out the task.")
    return SessionTarget(record.job_id, "", record.run)


def _check_state(state: str, phase: Phase | None, states: JobStates, what: str) -> None:
    if state in ENDING:
        raise JobConflict(f"{what} is ending: no session can begin in it.")
    if state in states.held_between_runs:
        raise JobConflict(f"{what} was requeued and is held ({state}): it has no node until it is released.")
    if phase is Phase.SUSPENDED:
        raise JobConflict(f"{what} is suspended: nothing can be started in it until it is resumed.")
    if phase in FINAL_PHASES:
        raise JobConflict(f"{what} has ended ({state}): there is nothing to enter.")
    if phase is not Phase.RUNNING or states.has_not_begun(state):
        raise JobConflict(f"{what} does not run yet ({state or phase}): it has no node.")


def _task(record: JobRecord, task: int | None) -> TaskObservation:
    if task is None:
        raise NotAcceptable("The job is an array: name one of its tasks.")
    found = record.status.task(task)
    if found is None:
        raise JobConflict(f"Task {task} of the array does not run: it waits, has ended, or does not exist.")
    return found
