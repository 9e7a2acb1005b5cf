"""The users of a hosted Slurm in a storm: their jobs, and what became of them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from redbox_bed.core.errors import BedError
from tests.e2e.harness.hosted_slurm import NAMESPACE
from tests.e2e.harness.hosted_storm import UNSAVED, Fields, HostedStorm
from tests.e2e.harness.waiting import eventually

RESULTS = "/results"
"""In the workers' pods: a folder that all have."""
LOOP = "echo begin; for i in $(seq {seconds}); do echo $i; sleep 1; done; echo end"
KINDS = ("batch", "batch", "array", "two nodes", "allocation", "no requeue")


@dataclass
class StormJob:
    """A job of a user's, and its files."""

    name: str
    seconds: int
    kind: str
    ends_at: float | None = None
    """Of an allocation, which its user ends."""
    allocation: str = ""

    @property
    def files(self) -> list[str]:
        if self.kind in {"array", "two nodes"}:
            return [f"{self.name}-0.out", f"{self.name}-1.out"]
        return [] if self.kind == "allocation" else [f"{self.name}.out"]

    @property
    def output(self) -> str:
        return "".join(["begin\n", *(f"{number + 1}\n" for number in range(self.seconds)), "end\n"])

    @property
    def elements(self) -> int:
        return 2 if self.kind == "array" else 1

    def wrong_files(self, results: Path, *, is_taken: bool, has_failed: bool) -> Iterator[str]:
        """A job that was taken leaves the output of more than one run, and the last one is whole."""
        for name in [] if has_failed else self.files:
            path = results / name
            written = path.read_text() if path.exists() else ""
            if not (written.endswith(self.output) if is_taken else written == self.output):
                yield f"{self.name} ({self.kind}): {name} is {written!r}"

    def command(self) -> list[str]:
        loop = LOOP.format(seconds=self.seconds)
        common = [f"--job-name={self.name}", "--time=10", "--chdir=/tmp", "--open-mode=append"]
        if self.kind == "allocation":
            return ["salloc", *common[:3], "--no-shell", "--immediate=20", "--nice=-1000"]
        if self.kind == "two nodes":
            step = f"srun --open-mode=append --output={RESULTS}/{self.name}-%t.out sh -c '{loop}'"
            return ["sbatch", *common, "--nodes=2", f"--output={RESULTS}/{self.name}.log", f"--wrap={step}"]
        more = {"array": ["--array=0-1"], "no requeue": ["--no-requeue"]}.get(self.kind, [])
        output = f"{RESULTS}/{self.name}{'-%a' if more == ['--array=0-1'] else ''}.out"
        return ["sbatch", *common, *more, f"--output={output}", f"--wrap={loop}"]


@dataclass
class Users:
    """They submit jobs during the storm, and try again while slurmctld is away."""

    storm: HostedStorm
    chance: random.Random
    jobs: list[StormJob]
    pause_s: float
    """The longest between two jobs."""
    over: threading.Event = field(default_factory=threading.Event)
    problems: list[str] = field(default_factory=list)

    def run(self) -> None:
        waiting = list(self.jobs)
        while (waiting or self._allocations()) and not self.over.is_set():
            try:
                self._end_allocations()
                if waiting and self._submit(waiting[0]):
                    waiting.pop(0)
                elif waiting:
                    waiting.append(waiting.pop(0))
            except BedError as error:
                self.storm.acts.append(
                    f"{self.storm.seconds:6.1f}: users: {' '.join(str(error).split())[-120:]}"
                )
            self.over.wait(self.chance.uniform(0, self.pause_s) if waiting else 1.0)

    def _submit(self, job: StormJob) -> bool:
        """Whether Slurm has it: an answer may have been lost."""
        with self.storm.submitting:
            try:
                self.storm.slurm.run(*job.command())
            except BedError:
                if job.kind == "allocation":  # its client has gone
                    self.storm.slurm.run("scancel", f"--name={job.name}")
                    return False
            found = eventually(lambda: self._numbers(job.name), what="slurmctld")
            if job.kind == "allocation" and found != ["none"]:
                job.allocation, job.ends_at = found[0], time.monotonic() + job.seconds
            return found != ["none"]

    def _numbers(self, name: str) -> list[str]:
        try:
            shown = self.storm.slurm.run(
                "squeue", "-h", "-a", f"--name={name}", "--states=R,PD,CD,CF,CG", "-o%A"
            )
        except BedError:
            return []
        return shown.split() or ["none"]

    def _allocations(self) -> list[StormJob]:
        return [job for job in self.jobs if job.ends_at is not None]

    def _end_allocations(self) -> None:
        for job in self._allocations():
            if job.ends_at is None or time.monotonic() < job.ends_at:
                continue
            with self.storm.submitting:
                fields = self.storm.slurm.job(job.allocation)
                if fields["JobState"] == "RUNNING":
                    self.storm.slurm.run("scancel", job.allocation)
                elif fields["JobState"] != "NODE_FAIL":
                    self.problems.append(f"{job.name}: {fields['JobState']} before its user ended it")
            job.ends_at = None

    def faults(self, results: Path) -> Iterator[str]:
        """Each way in which a job did not end as it should have."""
        shown: dict[str, list[Fields]] = {}
        for fields in self.storm.jobs():
            shown.setdefault(fields["JobName"], []).append(fields)
        events = self.storm.slurm.kubernetes.list("event", NAMESPACE)
        lost = " ".join(str(event["message"]) for event in events if event["reason"] == "JobsLost")
        yield from self.problems
        for job in self.jobs:
            found = shown.get(job.name, [])
            if job.kind == "allocation":  # those that were not granted have the same name
                found = [fields for fields in found if fields["JobId"] == job.allocation]
            if len(found) != job.elements:
                yield f"{job.name}: Slurm has {found}"
            for fields in found:
                taken = self.storm.taken.get(fields["JobId"], [])
                if fault := _fault_of(job, fields, lost, taken):
                    yield f"{job.name} ({job.kind}, {fields['JobId']}): {fault}, taken by {taken}"
            is_taken = any(fields["JobId"] in self.storm.taken for fields in found)
            has_failed = any(fields["JobState"] == "NODE_FAIL" for fields in found)
            yield from job.wrong_files(results, is_taken=is_taken, has_failed=is_taken and has_failed)


def _fault_of(job: StormJob, fields: Fields, lost: str, taken: list[str]) -> str:
    """Empty: it ended as it should have."""
    state = fields["JobState"]
    if state == "NODE_FAIL" and taken and job.kind in {"allocation", "no requeue"}:
        is_named = f"{fields['JobId']} (" in lost or UNSAVED in taken
        return "" if is_named else "no event JobsLost names it"
    if state != ("CANCELLED" if job.kind == "allocation" else "COMPLETED"):
        return state
    return "" if taken or fields["Restarts"] == "0" else f"requeued {fields['Restarts']} times"
