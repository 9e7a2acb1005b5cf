"""Sentences for people: why a job failed, waits, or ended as it did. Pure."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from redbox.jobs.record.launches import launch_failed, launched_again
from redbox.jobs.record.pods import explain_end
from redbox_api.models import Phase

if TYPE_CHECKING:
    from redbox.core.observations import ObservedStatus
    from redbox.jobs.record.record import JobRecord

ABSENT = "Slurm does not show job {} at present: red-box is finding out what became of it."
RESERVED_SIGNAL = 53  # Slurm's own: the batch step could not be set up
NOT_LAUNCHED = (
    "It was cancelled on {} before its {} began: by Slurm, as after a failed prolog or a restart of "
    "slurmctld (slurmd's log there says why), or by hand."
)
NOT_LAUNCHED_AGAIN = (
    "Slurm launched it once more (run {}), and cancelled that on {} before its script began: as after a "
    "failed prolog or a restart of slurmctld (slurmd's log there says why), or by hand. The run before had "
    "started{}; what became of it is not known."
)
CANCELLED_IN_SLURM = "It was cancelled in Slurm, which does not show who did it."
LAUNCHED_AGAIN = (
    "Slurm ended it, and launched it once more on {}: slurmctld was restarted before it had saved the start. "
    "A pod is not run twice."
)
KNOWN_EXITS = {
    125: "exit code 125, which says of a container that its image could not be pulled (its stderr says why)",
    126: "a command in it could not be run (exit code 126: is it executable?)",
    127: "a command in it was not found (exit code 127: is its module loaded, is PATH right?)",
}
ENDINGS = {
    "TIMEOUT": "It ran longer than its time limit and was ended by Slurm.",
    "OUT_OF_MEMORY": "It used more memory than it asked for: ask for more.",
    "DEADLINE": "Its deadline passed before it could end.",
    "PREEMPTED": "It was ended to make room for a job of higher priority.",
    "BOOT_FAIL": "The nodes that it was given did not start.",
}
HELD_RETRY = (
    "It is held by red-box until it is certain that an earlier submit of it, which was never answered, did "
    "not reach Slurm."
)
HELD_FOR_DEPENDENCY = (
    "It is held by red-box: Slurm has forgotten a job that it depends on. It waits for the next attempt of "
    "that job; without one, delete it."
)
NEVER_RAN = {
    "BadConstraints": "no node has all that it asks for",
    "InvalidAccount": "its account {account} is not valid for this user",
    "InvalidQOS": "its QOS {qos} is not valid for this user and account",
}
REASONS = {
    "Resources": "It waits for free nodes.",
    "Priority": "It waits for jobs of higher priority.",
    "Dependency": "It waits for a job that it depends on.",
    "DependencyNeverSatisfied": "It will never start: a job that it depends on did not end as required.",
    "BeginTime": "It waits for its begin time; after a requeue Slurm sets one about two minutes ahead.",
    "JobHeldUser": "It is held by its user: release it to let it start.",
    "JobHeldAdmin": "It is held by an administrator of the cluster.",
    "PartitionTimeLimit": "It will wait for ever: it asks for more time than partition {partition} allows.",
    "PartitionNodeLimit": "It will wait for ever: partition {partition} does not allow so many nodes.",
    "PartitionConfig": "It will wait for ever: partition {partition} does not have what it asks for.",
    "PartitionDown": "Partition {partition} is down: it starts when the partition is up again.",
    "PartitionInactive": "Partition {partition} is inactive: it starts when the partition is active again.",
    "InvalidAccount": "Its account {account} is not valid for this user.",
    "InvalidQOS": "Its QOS {qos} is not valid for this user and account.",
    "BadConstraints": "It will wait for ever: no node has all that it asks for.",
    "Licenses": "It waits for a licence.",
    "Reservation": "It waits for its reservation.",
    "NodeDown": "It waits for a node that is down.",
    "JobArrayTaskLimit": "Its array runs as many tasks at once as it allows itself.",
    "user_env_retrieval_failed_requeued_held": (
        "Its user's environment could not be read on the node, and Slurm holds it until it is released."
    ),
    "launch_failed_requeued_held": (
        "A node could not launch it (slurmd's log there says why), and Slurm holds it until it is released."
    ),
    "JobHoldMaxRequeue": "Slurm has requeued it too often, and holds it until it is released.",
}
PREFIXES = (
    ("ReqNodeNotAvail", "The nodes that it needs are not available (down, drained or reserved): {reason}."),
    ("Assoc", "A limit of account {account} holds it back ({reason})."),
    ("QOS", "A limit of QOS {qos} holds it back ({reason})."),
    ("MaxCpuPerAccount", "A limit of account {account} holds it back ({reason})."),
)


def explain(record: JobRecord) -> str | None:
    """One sentence about the record as it is now, or None if its state needs no explanation."""
    if record.phase is Phase.SUCCEEDED or record.awaits_report:
        return None
    if record.phase is Phase.CANCELLED:
        return record.limits_exceeded or _failed_launch(record) or _cancellation(record)
    if record.phase is Phase.FAILED or record.ending_since is not None:
        return _failed_launch(record) or explain_end(record) or _failure(record)
    if record.held_retry or (record.held_for_dependency and record.phase is Phase.PENDING):
        return HELD_RETRY if record.held_retry else HELD_FOR_DEPENDENCY
    if record.phase in (Phase.PENDING, Phase.SUSPENDED):
        return record.limits_exceeded or _waiting(record)
    return record.limits_exceeded or None


def _failed_launch(record: JobRecord) -> str | None:
    if not launch_failed(record):
        return None
    nodes, began = record.status.nodes, "runner" if record.is_pod else "script"
    if record.lost_reason:
        at = f" at {record.earlier_start:%H:%M:%S} UTC" if record.earlier_start else ""
        return NOT_LAUNCHED_AGAIN.format(record.run, nodes, at)
    return LAUNCHED_AGAIN.format(nodes) if launched_again(record) else NOT_LAUNCHED.format(nodes, began)


def _failure(record: JobRecord) -> str:
    status = record.status
    if status.state == "CANCELLED":
        return _cancellation(record)
    if status.array_size and status.tasks:
        return "Not all tasks of the array succeeded."
    if status.state == "NODE_FAIL":
        return f"A node that it ran on failed ({status.nodes or 'Slurm does not say which'})."
    if status.state in ENDINGS:
        return ENDINGS[status.state]
    if status.signal == RESERVED_SIGNAL or status.reason.startswith("RaisedSignal:53"):
        return _never_started(record)
    return _exit(status)


def _never_started(record: JobRecord) -> str:
    path = record.status.stdout or record.status.working_directory or "path not known"
    return (
        f"Slurm could not start its script (0:53): on the node, {record.user.name} cannot enter the working "
        f"directory or write the output file ({path})."
    )


def _exit(status: ObservedStatus) -> str:
    if status.signal:
        return f"It was ended by {signal_name(status.signal)}."
    if status.exit_code in KNOWN_EXITS:
        return f"It failed: {KNOWN_EXITS[status.exit_code]}."
    if status.exit_code is not None:
        return f"It exited with code {status.exit_code}."
    if not status.nodes:
        why = NEVER_RAN.get(status.reason, "it says {reason}" if status.reason else "it does not say why")
        cause = why.format(account=status.account, qos=status.qos, reason=status.reason)
        return f"Slurm failed it before it could start: {cause}."
    return f"It failed ({status.state}{', ' + status.reason if status.reason else ''})."


def _cancellation(record: JobRecord) -> str:
    by = record.status.cancelled_by
    if by is None and record.cancelled_by_redbox:
        return "It was cancelled through red-box."
    if by is None:
        return CANCELLED_IN_SLURM
    if by == 0:
        return "It was cancelled by an administrator (root)."
    if by == record.user.uid:
        return f"It was cancelled by {record.user.name}."
    return f"It was cancelled by the user with uid {by}."


def _waiting(record: JobRecord) -> str | None:
    status = record.status
    reason = status.reason.strip("()")
    words = REASONS.get(reason.replace(" ", "_"))
    if words is None:
        words = next((words for prefix, words in PREFIXES if reason.startswith(prefix)), None)
    if words is not None:
        names = {
            "partition": status.partition,
            "account": status.account,
            "qos": status.qos,
            "reason": reason,
        }
        return words.format(**names)
    return f"Slurm says: {reason}." if reason not in ("", "None") else None


def signal_name(number: int) -> str:
    """SIGKILL (9), as people know it."""
    try:
        return f"{signal.Signals(number).name} ({number})"
    except ValueError:
        return f"signal {number}"
