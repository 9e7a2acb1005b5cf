"""A slurmctld that is killed before it has saved what it did, and comes back with an earlier state.

Slurm saves at its own pace, up to 5 s late. Tests that need to know what is forgotten put the file of an
earlier moment back before the restart, as if nothing had been saved since.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until

STATE_FILE = "/var/spool/slurmctld/job_state"
KEPT = "/var/spool/slurmctld/kept_job_state"


def save_state(login: Host, controller: Host) -> None:
    """Have slurmctld save all that it knows: it is saved when a job that came later is in its file."""
    later = f"later-{secrets.token_hex(6)}"
    login.run("sbatch", "--hold", f"--job-name={later}", "--wrap=true", user="alice")
    wait_until(lambda: later.encode() in controller.read(STATE_FILE), 30, "slurmctld did not save its jobs")
    login.run("scancel", f"--name={later}", user="alice")


def kill_and_start(bed: Bed) -> None:
    bed.host("ctl").kill("slurmctld")
    bed.slurms[0].up()


@contextmanager
def nothing_saved(bed: Bed) -> Iterator[None]:
    """What happens inside is forgotten: slurmctld is killed at the end, and comes back as it was before."""
    controller = bed.host("ctl")
    save_state(bed.host("login"), controller)
    controller.run("cp", "--preserve", STATE_FILE, KEPT)
    try:
        yield
        controller.kill("slurmctld")
        for name in (STATE_FILE, f"{STATE_FILE}.old"):
            controller.run("cp", "--preserve", KEPT, name)
    finally:
        controller.run("rm", "-f", KEPT)
        bed.slurms[0].up()
