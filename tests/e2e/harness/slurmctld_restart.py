"""A slurmctld that is killed before it has saved what it did, and comes back with an earlier state.

Slurm saves at its own pace, up to 5 s late. Tests that need to know what is forgotten put the file of an
earlier moment back before the restart, as if nothing had been saved since.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until

STATE_FILE = "/var/spool/slurmctld/job_state"
BEGINS_WITHIN_S = 30.0
IDS_MARGIN, MOST_IDS = 10, 300
OWN_BITS = (1 << 26) - 1
"""Of a job id: above them is the cluster's number, if it was in a federation."""
KEPT = "/var/spool/slurmctld/kept_job_state"


def save_state(login: Host, controller: Host) -> None:
    """Have slurmctld save all that it knows: it is saved when a job that came later is in its file."""
    later = f"later-{secrets.token_hex(6)}"
    login.run("sbatch", "--hold", f"--job-name={later}", "--wrap=true", user="alice")
    wait_until(lambda: has_saved(controller, later), 60, "slurmctld did not save its jobs")
    login.run("scancel", f"--name={later}", user="alice")


def has_saved(controller: Host, job_name: str) -> bool:
    """Whether slurmctld has saved a job of this name; there is no file for a moment whenever it saves."""
    return _succeeds(controller, "grep", "-qaF", job_name, STATE_FILE)


def _succeeds(host: Host, *command: str) -> bool:
    return host.run(*command, check=False).returncode == 0


def kill_and_start(bed: Bed) -> None:
    bed.host("ctl").kill("slurmctld")
    bed.slurms[0].up()


@contextmanager
def nothing_saved(bed: Bed) -> Iterator[None]:
    """What happens inside is forgotten: slurmctld is killed at the end, and comes back as it was before."""
    controller = bed.host("ctl")
    save_state(bed.host("login"), controller)
    copy = ("cp", "--preserve", STATE_FILE, KEPT)
    wait_until(lambda: _succeeds(controller, *copy), 60, "there is no state of slurmctld's")
    try:
        yield
        controller.kill("slurmctld")
        for name in (STATE_FILE, f"{STATE_FILE}.old"):
            controller.run("cp", "--preserve", KEPT, name)
    finally:
        controller.run("rm", "-f", KEPT)
        bed.slurms[0].up()


def leave_forgotten_ids(login: Host) -> None:
    """Have Slurm go on with ids that no forgotten job had: one that is still on its node would refuse its id.

    Of jobs that never came to the accounting there are fewer than the margin.
    """
    shown = login.run("sacct", "-XDnPa", "-S", "now-2hours", "-o", "JobIDRaw").stdout.split()
    highest = max((int(job_id) & OWN_BITS for job_id in shown if job_id.isdigit()), default=0)
    submit = ("sbatch", "--parsable", "--hold", f"--job-name=later-{secrets.token_hex(6)}", "--wrap=true")
    for _ in range(MOST_IDS):
        if int(login.run(*submit, user="alice").stdout) > highest + IDS_MARGIN:
            break
    login.run("scancel", "--state=PENDING", "--user=alice")


@contextmanager
def administrator(bed: Bed) -> Iterator[None]:
    """Somebody who repairs what a restart of slurmctld leaves behind, as long as this lasts.

    A node that still has a forgotten job refuses the next job of that id and is drained (Duplicate jobid);
    the refused job waits for two minutes.
    """
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(_repair_until, bed.host("login"), over)
        try:
            yield
        finally:
            over.set()
            work.result()


def _repair_until(login: Host, over: threading.Event) -> None:
    moved: dict[str, float] = {}  # when the begin of a job was last moved: each move begins its wait anew
    while not over.wait(2.0):
        for node in login.run("sinfo", "-h", "-R", "-o", "%N", check=False).stdout.split():
            login.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        pending = login.run("squeue", "-h", "-t", "PD", "-o", "%A %r", check=False).stdout
        for job_id, _, reason in (line.partition(" ") for line in pending.splitlines()):
            if (
                reason == "BeginTime"
                and time.monotonic() - moved.get(job_id, float("-inf")) > BEGINS_WITHIN_S
            ):
                moved[job_id] = time.monotonic()
                login.run("scontrol", "update", f"JobId={job_id}", "StartTime=now+3", check=False)
            elif reason.startswith("launch"):
                login.run("scontrol", "release", job_id, check=False)
