"""Whatever happens, in whatever order: one key is one job, or a clear refusal, and no stranger is touched."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redbox.core.observations import Observation
from redbox.jobs.errors import JobConflict, JobNotFound, JobsBusy, JobsError, RefusedBySlurm, RetryableError
from redbox.jobs.record.packed_records import unpack
from redbox_api.models import FINAL_PHASES, Job, Phase
from tests import nightly
from tests.redbox.jobs.fakes import ENDED
from tests.redbox.jobs.harness import World, caller, request
from tests.redbox.jobs.submit_manners import HANGS, NEVER_ARRIVES, PROMPT, REFUSED, UNAVAILABLE, late

KEYS = ["one", "two", "three"]
MANNERS = [
    PROMPT,
    REFUSED,
    UNAVAILABLE,
    NEVER_ARRIVES,
    HANGS,
    late(5.0, 6.0),
    late(30.0),
    late(90.0),
    late(400.0),
]
EXPECTED = (RetryableError, JobConflict, JobNotFound, RefusedBySlurm)


class ExactlyOnce(RuleBasedStateMachine):
    """Callers, crashes, and a Slurm that does its worst."""

    @initialize(accounting=st.booleans())
    def begin(self, *, accounting: bool) -> None:
        # In memory where that can be: these are a hundred thousand commits, and none meets a power cut.
        parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.directory = Path(tempfile.mkdtemp(dir=parent))
        self.world = World(self.directory)
        self.world.slurm.accounting = accounting
        self.bodies: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.foreign: dict[str, Observation] = {}
        self.puts: list[asyncio.Task[Any]] = []

    # ---------------------------------------------------------------------------------------- callers

    @rule(key=st.sampled_from(KEYS), body=st.sampled_from(["a", "a", "b"]), manner=st.sampled_from(MANNERS))
    def put(self, key: str, body: str, manner: Any) -> None:
        if not self.world.slurm.manners:
            self.world.slurm.manners.append(manner)
        self.puts.append(self.world.begin(self.world.jobs.put(caller(), key, 1, request(body))))
        self.world.settle()
        self._hear()

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: str) -> None:
        task = self.world.begin(self.world.jobs.delete(caller(), key))
        self.world.settle()
        assert task.done()
        assert isinstance(task.exception(), JobNotFound | None)
        self.deleted.add(key)

    def _hear(self) -> None:
        """What a caller is told is one of the things that may be told."""
        for task in [task for task in self.puts if task.done()]:
            self.puts.remove(task)
            error = task.exception()
            assert error is None or isinstance(error, EXPECTED), error

    # -------------------------------------------------------------------------------- the server's fate

    @rule(
        key=st.sampled_from(KEYS),
        steps=st.integers(0, 40),
        loses=st.booleans(),
        manner=st.sampled_from(MANNERS),
    )
    def crash_under_a_put(self, *, key: str, steps: int, loses: bool, manner: Any) -> None:
        if not self.world.slurm.manners:
            self.world.slurm.manners.append(manner)
        self.world.begin(self.world.jobs.put(caller(), key, 1, request("a")))
        self._crash(steps=steps, loses=loses)

    @rule(steps=st.integers(0, 40), loses=st.booleans(), seconds=st.sampled_from([0.0, 1.3, 70.0]))
    def crash(self, *, steps: int, loses: bool, seconds: float) -> None:
        waking = self.world.clock.next_waking()
        if waking is not None:
            self.world.clock.advance_to(waking)
        self._crash(steps=steps, loses=loses)
        self.world.clock.advance_to(self.world.clock.elapsed + seconds)

    def _crash(self, *, steps: int, loses: bool) -> None:
        for _ in range(steps):
            self.world.step()
        self.world.journal.losing = loses
        self.world.step()
        self.puts.clear()
        self.world.crash()
        self.world.start()

    @rule(seconds=st.sampled_from([0.5, 3.0, 15.0, 70.0, 400.0]))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)
        self._hear()

    # ---------------------------------------------------------------------------------------- Slurm's fate

    @rule(what=st.sampled_from(["down", "accounting_down"]), on=st.booleans())
    def outage(self, *, what: str, on: bool) -> None:
        setattr(self.world.slurm, what, on)

    @rule(on=st.booleans())
    def hide(self, *, on: bool) -> None:
        self.world.slurm.hidden_uids = frozenset({2001}) if on else frozenset()

    def _ours(self) -> list[Observation]:
        return [job for job in self.world.slurm.jobs.values() if job.uid == 2001]

    @precondition(lambda self: self._shown())
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.world.slurm.start(data.draw(st.sampled_from(self._shown())))

    def _shown(self) -> list[str]:
        """Jobs that wait, are not held, and are the ones that red-box follows: others it may still cancel."""
        bound = {unpack(outline).job_id for outline in self.world.jobs}
        waiting = [job for job in self._ours() if job.state == "PENDING" and job.reason != "JobHeldUser"]
        return [job.job_id for job in waiting if job.job_id in bound]

    @precondition(lambda self: any(job.state == "RUNNING" for job in self._ours()))
    @rule(data=st.data(), state=st.sampled_from(["COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT"]))
    def end(self, data: st.DataObject, state: str) -> None:
        running = [job.job_id for job in self._ours() if job.state == "RUNNING"]
        self.world.slurm.end(data.draw(st.sampled_from(running)), state)

    @precondition(lambda self: any(job.state == "NODE_FAIL" for job in self._ours()))
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        failed = [job.job_id for job in self._ours() if job.state == "NODE_FAIL"]
        self.world.slurm.requeue(data.draw(st.sampled_from(failed)))

    @precondition(lambda self: self._ours())
    @rule(data=st.data(), taken=st.booleans(), rows_too=st.booleans(), noticed=st.booleans())
    def controller_dies_young(
        self, *, data: st.DataObject, taken: bool, rows_too: bool, noticed: bool
    ) -> None:
        """It forgets a job, and its id goes to a stranger; its BOOT_TIME may be the same within a second."""
        job_id = data.draw(st.sampled_from([job.job_id for job in self._ours()]))
        self.world.slurm.forget(job_id, rows_too=rows_too)
        self.world.slurm.boots += noticed
        if taken:
            self.foreign[job_id] = self.world.slurm.add_foreign(2002, job_id=job_id, state="RUNNING")

    @precondition(lambda self: self.world.slurm.ever)
    @rule(data=st.data())
    def a_stranger_copies_a_mark(self, data: st.DataObject) -> None:
        mark = data.draw(st.sampled_from([job.mark for job in self.world.slurm.ever]))
        job = self.world.slurm.add_foreign(2002, mark=mark)
        self.foreign[job.job_id] = job

    # ---------------------------------------------------------------------------------------- what must hold

    @invariant()
    def no_stranger_is_touched(self) -> None:
        for job_id, job in self.foreign.items():
            assert self.world.slurm.jobs[job_id] == job

    @invariant()
    def at_most_one_job_of_a_key_can_start(self) -> None:
        """Two may live for the moment until the next look, never two that run."""
        for mark in {job.mark for job in self.world.slurm.ever}:
            living = [job for job in self.world.slurm.living(mark) if job.uid == 2001]
            assert sum(job.state == "RUNNING" for job in living) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self._in_the_end_all_is_well()
        finally:
            self.world.crash()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _in_the_end_all_is_well(self) -> None:
        slurm = self.world.slurm
        slurm.down = slurm.accounting_down = False
        slurm.hidden_uids = frozenset()
        slurm.manners.clear()
        slurm.processes = [process for process in slurm.processes if process.manner is not HANGS]
        self.world.advance(2000)
        self._hear()
        for key in KEYS:
            self._one_job_or_a_refusal(key)
        self.no_stranger_is_touched()

    def _one_job_or_a_refusal(self, key: str) -> None:
        answer = self._asked_until_clear(key)
        self.world.advance(30)
        mine = [job for job in self._ours() if job.mark.startswith(f"rb1.{key}.") and job.state not in ENDED]
        if isinstance(answer, JobsError):
            assert isinstance(answer, JobConflict), answer
            assert len(mine) <= 1
        else:
            now = self.world.run(self.world.jobs.get(caller(), key))
            assert [job.job_id for job in mine] == ([] if now.phase in FINAL_PHASES else [now.job_id])
            assert now.phase is not Phase.SUBMITTING
        if key in self.deleted:
            assert mine == []

    def _asked_until_clear(self, key: str) -> Job | JobsError:
        """As a companion does: while it is told to come again, it does."""
        for _ in range(100):
            task = self.world.begin(self.world.jobs.put(caller(), key, 1, request("a")))
            self.world.advance(30)
            error = task.exception()
            if error is None:
                return task.result()[0]
            assert isinstance(error, JobsError), error
            if not isinstance(error, JobsBusy):
                return error
        raise AssertionError(f"{key} is never settled")


ExactlyOnce.TestCase.settings = settings(
    max_examples=nightly.count("EXACTLY_ONCE_EXAMPLES", 30, 200),
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
TestExactlyOnce = ExactlyOnce.TestCase
