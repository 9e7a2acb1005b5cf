"""SlurmJobs whose jobs a killed slurmctld has forgotten: with `backoffLimit` they run all the same, and once.

FORGOTTEN_KILLS says how often slurmctld is killed 0 to 5 s after SlurmJobs were applied (once; 3 times
nightly, 30 by hand), FORGOTTEN_SEED repeats the moments of another run.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from redbox_bed.bed import Bed
from tests import nightly
from tests.e2e.harness.slurmctld_restart import (
    administrator,
    kill_and_start,
    leave_forgotten_ids,
    nothing_saved,
)
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, is_whole, new_name
from tests.e2e.harness.waiting import eventually

KILLS = nightly.count("FORGOTTEN_KILLS", 1, 3)
SEED = os.environ.get("FORGOTTEN_SEED") or secrets.token_hex(4)
ENDS_WITHIN_S = 600.0  # a submit whose connection broke may arrive for five minutes: the next is held so long
LINES = 400
QUIET_S = 6.0  # Slurm saves the first change after a while without any at once, the next ones later
OUTPUT = "".join(f"{number}\n" for number in range(1, LINES + 1))
SCRIPT = "#SBATCH --mem=20M\necho $SLURM_JOB_ID {name} >> {ledger}\nseq {lines}\nsleep 1\nexit {code}"


@pytest.fixture(scope="module", autouse=True)
def ids_of_its_own(bed: Bed) -> Iterator[None]:
    yield
    leave_forgotten_ids(bed.host("login"))


def forgotten_before_its_start(bed: Bed, jobs: SlurmJobs, **spec: Any) -> Applied:
    """Held, so that Slurm cannot start it, and forgotten then."""
    with nothing_saved(bed):
        job = jobs.apply("true", hold=True, resources={"time": "5"}, **spec)
        job.until(lambda status: status.get("jobID") and status.get("reason") == "JobHeldUser")
    return job


def test_with_a_backoff_limit_the_next_attempt_is_submitted_at_once(bed: Bed, jobs: SlurmJobs) -> None:
    job = forgotten_before_its_start(bed, jobs, backoffLimit=1)
    job.until(lambda status: status.get("attempts") == 2 and status.get("jobID"))
    eventually(lambda: "ForgottenBySlurm" in job.events(), what="its event")
    job.change(hold=False)
    status = job.finishes()
    assert (status["phase"], status["attempts"]) == ("Succeeded", 2)


def test_without_one_the_status_says_what_is_known_and_what_to_type(bed: Bed, jobs: SlurmJobs) -> None:
    job = forgotten_before_its_start(bed, jobs)
    synced = job.says("Synced", "Stale")
    assert (synced["phase"], synced.get("reason")) == ("Submitted", None)
    status = job.finishes()
    assert (status["phase"], status["reason"]) == ("Failed", "ForgottenBySlurm")
    assert "Nothing shows that it started" in status["message"]
    assert f"kubectl delete slurmjob {job.name}" in status["message"]
    assert job.conditions["Finished"] == ("True", "Lost")


@pytest.mark.timeout(900 + 120 * KILLS)
def test_whenever_slurmctld_is_killed_each_script_runs_once_and_its_log_is_whole(
    bed: Bed, jobs: SlurmJobs
) -> None:
    print(f"FORGOTTEN_SEED={SEED} FORGOTTEN_KILLS={KILLS}")
    chance = random.Random(SEED)
    ledger = f"/home/alice/ledger-{secrets.token_hex(4)}"
    codes: dict[Applied, int] = {}
    faults: list[str] = []
    with administrator(bed):
        for _ in range(KILLS):
            applied = []
            time.sleep(QUIET_S)
            for _ in range(chance.randint(2, 5)):
                name, code = new_name(), chance.choice([0, 0, 5])
                script = SCRIPT.format(name=name, ledger=ledger, lines=LINES, code=code)
                job = jobs.apply(
                    script, name=name, backoffLimit=3 if code == 0 else 0, resources={"time": "5"}
                )
                applied.append(job)
                codes[job] = code
            time.sleep(chance.uniform(0, 5))
            kill_and_start(bed)
            for job in applied:
                job.reaches("Succeeded", "Failed", "Cancelled", within_s=ENDS_WITHIN_S)
    login = bed.host("login")
    began = [line.split() for line in login.run("cat", ledger).stdout.splitlines()]
    running = login.run("squeue", "-h", "-t", "R", "-o", "%j").stdout.split()
    attempts = forgotten = 0
    for job, code in codes.items():
        status = job.status
        attempts += status["attempts"]
        forgotten += status.get("reason") == "ForgottenBySlurm"
        # A second run whose end Slurm has forgotten: it shows it as running until it misses it there.
        if status["phase"] == "Running" and job.name in running:
            continue
        faults += faults_of(job, code, [job_id for job_id, name in began if name == job.name])
    print(f"{KILLS} kills, {len(codes)} SlurmJobs, {attempts} attempts, {forgotten} lost after a start")
    print(*faults, sep="\n")
    assert faults == []


def faults_of(job: Applied, code: int, began: list[str]) -> list[str]:
    """Each way in which the status, the log or the script's own record are not as they should be."""
    status, faults = job.status, []
    if len(set(began)) > 1:
        faults.append(f"{job.name}: jobs {began} have begun")
    if status.get("reason") == "ForgottenBySlurm":
        if code == 0 and "It may have started" not in status["message"]:
            faults.append(f"{job.name}: not submitted again: {status['message']}")
        return faults
    expected = ("Succeeded", 0) if code == 0 else ("Failed", code)
    if (status["phase"], status.get("exitCode")) != expected:
        faults.append(f"{job.name}: {status['phase']} {status.get('exitCode')}, not {expected}")
    log = job.whole_output(status["attempts"])
    if not is_whole(log, OUTPUT) or (len(began) == 1 and log != OUTPUT):
        faults.append(f"{job.name}: its log has {len(log)} bytes of {len(OUTPUT)}")
    return faults
