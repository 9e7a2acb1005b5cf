"""Jobs that were cancelled without a request to red-box: by whom, and whether their launch failed. Pure.

slurmd cancels, as root, what it cannot launch and what may not be requeued: after a failed prolog, or where a
restarted slurmctld launches again what it had saved as pending, or gives an id out again that the node still
has. An administrator may cancel as root, too. So a launch has failed only where nothing shows a start: of a
pod no report of its runner, of another job no output file. Every doubt is a sign of a start.

A job that a restarted slurmctld, or a requeue, launched once more has a start behind it: if that launch
failed, its outcome is unknown. Its output may be of the run before, so the exit code decides: Slurm's queue
has the signal that ended a script (0:15), and 0:0 where no script began. A script whose node is gone has 0:0,
too, so that a run of more than some minutes counts as one that began.
"""

from __future__ import annotations

from datetime import timedelta

from redbox.jobs.record.pods import stored_report
from redbox.jobs.record.record import JobRecord, Stage
from redbox_api.models import Phase
from redbox_shared.wire import LAUNCH_FAILED

CANCELLED = "CANCELLED"
ROOT = 0
LAUNCHED_WITHIN = timedelta(minutes=10)
NOT_RUN_TWICE = 70
"""Exit code of a runner that finds its pod run before."""


def lacks_canceller(record: JobRecord) -> bool:
    """Whether somebody cancelled it in Slurm whom the queue does not show."""
    ended = record.phase is Phase.CANCELLED if record.final else record.ending_since is not None
    return ended and _was_cancelled(record) and record.status.cancelled_by is None


def may_be_failed_launch(record: JobRecord) -> bool:
    """Whether the accounting, and of a job its output file, can still show what this end is."""
    status = record.status
    if status.requeue or not status.nodes or not _was_cancelled(record):
        return False  # what may be requeued is held after a failed launch
    if record.is_pod:
        return status.cancelled_by is None and not record.pod_report
    if record.run > 1 and not _shows_no_script(record):
        return False
    if any(task.state != CANCELLED for task in status.tasks):
        return False
    return status.cancelled_by in (None, ROOT) and not (record.no_sign_of_start or record.lost_reason)


def _shows_no_script(record: JobRecord) -> bool:
    """Of a later run: the queue shows its end, soon and without a code; accounting shows no signal at all."""
    status = record.status
    if status.array_size or status.signal or status.exit_code or not record.in_queue:
        return False
    if status.started_at is None or status.ended_at is None:
        return False
    return status.ended_at - status.started_at < LAUNCHED_WITHIN


def launch_failed(record: JobRecord) -> bool:
    """Whether Slurm ended this job since a node could not launch it, for the first time or once more."""
    status = record.status
    if record.is_pod:
        return _launch_of_pod_failed(record)
    is_roots = status.cancelled_by == ROOT and bool(status.nodes)
    is_decided = record.no_sign_of_start or record.lost_reason == LAUNCH_FAILED
    return _was_cancelled(record) and is_roots and is_decided


def phase_of_failed_launch(record: JobRecord) -> Phase | None:
    """Lost where an earlier run had started: that one may have done all of its work."""
    if not launch_failed(record):
        return None
    return Phase.LOST if record.lost_reason == LAUNCH_FAILED else Phase.FAILED


def launched_again(record: JobRecord) -> bool:
    """Whether Slurm launched this pod once more, of its own accord, before its containers had ended.

    Polls may have missed the first start, but not a container that began before Slurm's start.
    """
    report, start = stored_report(record.pod_report), record.status.started_at
    if report is None:
        return record.run > 1
    began = [container.state.running or container.state.terminated for container in report.containers]
    times = [state.started_at for state in began if state is not None and state.started_at is not None]
    is_again = record.run > 1 or (start is not None and any(time < start for time in times))
    return is_again and (report.stopped or not report.done)


def _was_cancelled(record: JobRecord) -> bool:
    is_shown = record.stage is Stage.BOUND and record.status.state == CANCELLED
    return is_shown and not record.cancelled_by_redbox


def _launch_of_pod_failed(record: JobRecord) -> bool:
    """A pod is never run twice: an end of which it is not known who brought it counts, too."""
    status = record.status
    if not status.nodes or record.cancelled_by_redbox:
        return False
    if status.state == CANCELLED and status.cancelled_by in (None, ROOT):
        return not record.pod_report or launched_again(record)
    return launched_again(record) and status.state == "FAILED" and status.exit_code == NOT_RUN_TWICE
