"""Which run's bytes are in a job's file, as its record moves."""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from redbox.agents.errors import AgentError, AgentRefused, SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.agents.protocol.answers import ReadResult
from redbox.core.clock import SystemClock
from redbox.core.domain import Caller, JobKey, JobRef, Owner, UnixUser
from redbox.core.observations import ObservedStatus, TaskObservation
from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.logs.interfaces import JobRecordDeleted, LogFileUnavailable, LogFileUnreadable
from redbox.logs.job_logs import JobLogReader, JobOutputSource
from redbox.logs.service import LogReadRequest, LogService
from redbox.logs.settings import LogSettings
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Phase

KEY = JobKey(Owner("prod", "physics", "default"), "k")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
REQUEUED = [
    (Phase.RUNNING, "RUNNING", 1, 1),
    (Phase.RUNNING, "COMPLETING", 2, 1),  # the first run ends, and Slurm counts the second already
    (Phase.PENDING, "PENDING", 2, 1),
    (Phase.RUNNING, "RUNNING", 2, 2),
    (Phase.RUNNING, "COMPLETING", 2, 2),
    (Phase.SUCCEEDED, "COMPLETED", 2, 2),
]


def record(phase: Phase, state: str, run: int) -> JobRecord:
    return JobRecord(
        key=KEY,
        user=UnixUser("alice", 2001),
        mark="m",
        body_id="b",
        created_at=NOW,
        last_submit_at=NOW,
        phase=phase,
        run=run,
        status=ObservedStatus(state=state, stdout="/home/alice/out"),
    )


def output_of(
    jobs: SimpleNamespace, task: int | None = None, *, appends: bool = False, stream: str = "stdout"
) -> JobOutputSource:
    workload = SimpleNamespace(states=JOB_STATES, appends=lambda: appends)
    return JobOutputSource(cast("JobService", jobs), cast("WorkloadManager", workload), KEY, stream, task)


def test_a_requeued_jobs_file_is_the_old_runs_until_the_new_one_works() -> None:
    jobs = SimpleNamespace(current=lambda _: None)
    output = output_of(jobs)
    for phase, state, run, expected in REQUEUED:
        jobs.current = {KEY: record(phase, state, run)}.get
        assert output.current().run == expected, (phase, state, run)


@pytest.mark.parametrize("held", ["SPECIAL_EXIT", "REQUEUE_HOLD"])
def test_a_job_that_slurm_holds_after_a_requeue_has_not_begun_its_next_run(held: str) -> None:
    jobs = SimpleNamespace(current=lambda _: None)
    output = output_of(jobs)
    states = []
    for phase, state, run in [REQUEUED[0][:3], (Phase.SUSPENDED, held, 2), (Phase.RUNNING, "RUNNING", 2)]:
        jobs.current = {KEY: record(phase, state, run)}.get
        states.append((output.current().run, output.current().writing))
    assert states == [(1, True), (1, False), (2, True)]


def test_a_job_that_is_paused_is_in_its_run() -> None:
    jobs = SimpleNamespace(current=lambda _: record(Phase.SUSPENDED, "SUSPENDED", 2))
    written = output_of(jobs).current()
    assert (written.run, written.writing) == (2, True)


@pytest.mark.parametrize(
    ("own", "by_default", "runs"),
    [(True, False, [1, 1, 1]), (None, True, [1, 1, 1]), (False, True, [1, 1, 2]), (None, False, [1, 1, 2])],
)
def test_the_runs_of_a_job_that_appends_are_one_log(
    own: bool | None,  # noqa: FBT001 (what a job says, or nothing)
    by_default: bool,  # noqa: FBT001 (what Slurm does otherwise)
    runs: list[int],
) -> None:
    jobs = SimpleNamespace(current=lambda _: None)
    output = output_of(jobs, None, appends=by_default)
    states = []
    for phase, state, run in [(Phase.RUNNING, "RUNNING", 1), (Phase.PENDING, "PENDING", 2), REQUEUED[3][:3]]:
        jobs.current = {KEY: replace(record(phase, state, run), appends=own)}.get
        states.append(output.current().run)
    assert states == runs


@pytest.mark.parametrize(
    ("state", "run", "began"),
    [("RUNNING", 1, None), ("RUNNING", 2, NOW.timestamp()), ("COMPLETED", 2, NOW.timestamp())],
)
def test_when_a_run_began_is_told_of_those_that_may_find_an_earlier_ones_file(
    state: str, run: int, began: float | None
) -> None:
    phase = Phase.RUNNING if state == "RUNNING" else Phase.SUCCEEDED
    status = ObservedStatus(state=state, stdout="/home/alice/out", started_at=NOW)
    jobs = SimpleNamespace(current=lambda _: replace(record(phase, state, run), status=status))
    assert output_of(jobs).current().began == began


def test_the_end_of_a_run_that_is_requeued_is_not_taken_for_the_next_ones_beginning() -> None:
    jobs = SimpleNamespace(current=lambda _: None)
    output = output_of(jobs)
    for state, run in [("RUNNING", 1), ("COMPLETING", 2)]:
        status = ObservedStatus(state=state, stdout="/home/alice/out", started_at=NOW)
        shown = replace(record(Phase.RUNNING, state, run), status=status)
        jobs.current = {KEY: shown}.get
        assert (output.current().run, output.current().began) == (1, None)


def test_the_log_of_a_job_that_is_forgotten_is_not_taken_for_whole() -> None:
    jobs = SimpleNamespace(current=lambda _: None)
    with pytest.raises(JobRecordDeleted):
        output_of(jobs).current()


@pytest.mark.parametrize(("phase", "state"), [(Phase.RUNNING, "COMPLETING"), (Phase.SUCCEEDED, "COMPLETED")])
def test_who_comes_late_believes_slurms_count(phase: Phase, state: str) -> None:
    jobs = SimpleNamespace(current=lambda _: record(phase, state, 2))
    assert output_of(jobs).current().run == 2


def array(phase: Phase, *states: str) -> JobRecord:
    """An array whose tasks are in these states, from the first on; the rest is not split off."""
    tasks = tuple(TaskObservation(index, str(7 + index), state) for index, state in enumerate(states))
    status = ObservedStatus(
        state="RUNNING", stdout="/home/alice/%a", tasks=tasks, array_size=9, pending_tasks=9 - len(tasks)
    )
    return replace(record(phase, "RUNNING", 1), job_id="7", status=status)


@pytest.mark.parametrize(
    ("phase", "state", "run", "writing", "final"),
    [
        (Phase.RUNNING, "PENDING", 0, False, False),
        (Phase.PENDING, "RUNNING", 1, True, False),
        (Phase.PENDING, "COMPLETED", 1, False, True),  # the next task waits for a place
        (Phase.RUNNING, "FAILED", 1, False, True),
        (Phase.RUNNING, "NODE_FAIL", 1, False, False),  # Slurm may run it once more
    ],
)
def test_a_tasks_log_goes_by_the_task_and_not_by_the_array(
    phase: Phase, state: str, run: int, *, writing: bool, final: bool
) -> None:
    jobs = SimpleNamespace(current=lambda _: array(phase, "RUNNING", state))
    written = output_of(jobs, 1).current()
    assert (written.path, written.run) == ("/home/alice/1", run)
    assert (written.writing, written.final) == (writing, final)


@pytest.mark.parametrize("final", [False, True])
def test_a_requeue_of_one_task_is_no_other_tasks(*, final: bool) -> None:
    tasks = tuple(TaskObservation(i, f"7_{i}", "COMPLETED", 0, 0, restarts=i) for i in range(2))
    over = array(Phase.SUCCEEDED if final else Phase.RUNNING, "COMPLETED", "COMPLETED")
    for run in (1, 2):  # of the row that the array goes by
        shown = replace(over, run=run, status=replace(over.status, tasks=tasks))
        jobs = SimpleNamespace(current={KEY: shown}.get)
        outputs = (output_of(jobs, task) for task in range(2))
        assert [output.current().run for output in outputs] == [1, 2]


def test_of_a_task_that_nothing_is_known_of_the_array_says() -> None:
    jobs = SimpleNamespace(current=lambda _: array(Phase.RUNNING, "RUNNING"))
    written = output_of(jobs, 5).current()
    assert (written.run, written.writing, written.final) == (1, True, False)


def test_a_task_that_is_requeued_goes_on_in_its_file_for_who_has_seen_it_run() -> None:
    jobs = SimpleNamespace(current=lambda _: None)
    output = output_of(jobs, 0)
    for state in ("RUNNING", "PENDING", "RUNNING"):
        jobs.current = {KEY: array(Phase.RUNNING, state)}.get
        assert output.current().run == 1, state


def test_the_streams_of_a_task_whose_paths_are_not_known_yet_are_not_taken_for_one() -> None:
    """Else its stderr would be answered as empty and complete, before the task has begun."""
    shown = array(Phase.PENDING)
    status = replace(shown.status, state="PENDING", stdout="/h/%N-%a.out", stderr="/h/%N-%a.err")
    jobs = SimpleNamespace(current=lambda _: replace(shown, status=status))
    assert not output_of(jobs, 0, stream="stderr").is_merged()
    both = replace(status, stdout="/h/%a.out", stderr="/h/%a.out")
    jobs.current = lambda _: replace(shown, status=both)
    assert output_of(jobs, 0, stream="stderr").is_merged()


def test_the_log_of_a_task_is_its_own_where_the_path_has_its_id_or_its_node() -> None:
    """The array has other ones: they are those of one task, and of the tasks together."""
    shown = array(Phase.RUNNING, "RUNNING", "RUNNING")
    tasks = (
        TaskObservation(0, "7_0", "RUNNING", own_id="8", node="n3"),
        TaskObservation(1, "7_1", "RUNNING"),
    )
    status = replace(shown.status, tasks=tasks, nodes="n[1,3]", stdout="/h/%j.out", stderr="/h/%N-%a.err")
    jobs = SimpleNamespace(current=lambda _: replace(shown, status=status))
    assert output_of(jobs, 0).current().path == "/h/8.out"
    assert output_of(jobs, 0, stream="stderr").current().path == "/h/n3-0.err"
    assert output_of(jobs, 1).current().path is None
    assert output_of(jobs, 5, stream="stderr").current().path is None
    jobs.current = lambda _: replace(shown, status=replace(status, stdout="/h/%A_%a.out"))
    assert output_of(jobs, 5).current().path == "/h/7_5.out"


@dataclass
class BrokenDisk:
    """Stands for the pool and for the agent: each read ends with this error."""

    error: AgentError

    async def agent(self, *_: object) -> BrokenDisk:
        return self

    async def read(self, *_: object, **__: object) -> ReadResult:
        raise self.error


EIO = SystemCallFailed(errno.EIO, "Input/output error", "/home/alice/out")
REFUSED = AgentRefused("the agent of alice did not start: alice may not log in")


@pytest.mark.parametrize("error", [EIO, REFUSED])
@pytest.mark.parametrize("follow", [False, True])
async def test_a_log_that_cannot_be_read_is_waited_for_and_at_last_given_up(
    error: AgentError,
    follow: bool,  # noqa: FBT001
) -> None:
    """Its companion ends only with its logs, and says then which of them it could not read."""
    ended = replace(record(Phase.SUCCEEDED, "COMPLETED", 1), final_at=NOW)
    clock = ManualClock(NOW + timedelta(minutes=14))

    async def locate(*_: object) -> JobRecord:
        return ended

    jobs = cast("JobService", SimpleNamespace(locate=locate, current=lambda _: ended))
    workload = cast("WorkloadManager", SimpleNamespace(states=JOB_STATES, appends=lambda: False))
    logs = LogService(LogSettings(), time.monotonic)
    reader = JobLogReader(jobs, cast("AgentPool", BrokenDisk(error)), logs, workload, clock)
    ref, request = JobRef(cast("Caller", None), "k", 1), LogReadRequest(follow=follow)
    with pytest.raises(LogFileUnavailable):
        async with reader.read(ref, "stdout", None, request):
            pass
    clock.at += timedelta(minutes=2)
    with pytest.raises(LogFileUnreadable, match="not waited for any longer"):
        async with reader.read(ref, "stdout", None, request):
            pass


class ManualClock(SystemClock):
    """It shows what a test says."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at
