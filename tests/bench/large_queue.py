"""A journal and a queue that are larger than any slurmctld of the bed: made here, put on the login host.

red-box is the real one there. Only squeue is simulated: `loads/simulated_squeue.py` prints the queue.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from redbox.core.domain import UnixUser
from redbox.jobs.record.record import JobRecord
from redbox.jobs.store.journal import FILE_NAME
from redbox.jobs.store.sqlite import Database, JournalBatch
from redbox.slurm.commands.squeue import FIELDS
from redbox_api.models import Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.bench.bench_slurm import USER
from tests.bench.loads.simulated_squeue import FIELD_END, FOLDER, RECORD_END
from tests.bench.memory_of_jobs import NOW, record
from tests.e2e.harness.redbox_server import RedboxServer, end_red_box, install

SQUEUE = "/usr/local/bin/squeue"
SOURCE = Path(__file__).parent / "loads/simulated_squeue.py"
FIRST_FOREIGN = 10_000_000
AT_ONCE = 10_000


@dataclass(frozen=True)
class LargeQueue:
    """How many jobs there are: `waiting` and `ended` of ours, and `foreign` ones."""

    waiting: int
    ended: int = 0
    foreign: int = 0


@contextmanager
def filled_redbox(
    bed: Bed, queue: LargeQueue, sections: dict[str, dict[str, float]]
) -> Iterator[RedboxServer]:
    """A red-box that is ready to start, with these jobs in its journal and in the queue that it will see."""
    install(bed)
    login = bed.host("login")
    user = UnixUser(USER, int(login.run("id", "-u", USER).stdout))
    server = RedboxServer(bed, sections=sections)
    end_red_box(login)
    try:
        server.introduce()
        owner = f"{server.user}:{server.user}"
        waiting = [waits(number, user) for number in range(queue.waiting)]
        login.write(
            f"{server.folder}/{FILE_NAME}", journal_of(waiting, user, queue.ended), mode=0o600, owner=owner
        )
        login.run("install", "-d", "-o", server.user, "-m", "755", str(FOLDER))
        login.write(f"{FOLDER}/queue", queue_text(waiting, queue.foreign))
        login.write(SQUEUE, SOURCE.read_text(), mode=0o755)
        yield server
    finally:
        login.run("rm", "-rf", SQUEUE, str(FOLDER))
        server.remove()


def calls_of_squeue(login: Host) -> int:
    return int(login.run("sh", "-c", f"cat {FOLDER}/calls 2>/dev/null | wc -l").stdout)


def waits(number: int, user: UnixUser) -> JobRecord:
    return replace(record(number), user=user)


def has_ended(number: int, user: UnixUser) -> JobRecord:
    one = waits(number, user)
    end = NOW + timedelta(minutes=1)
    status = replace(
        one.status,
        state="COMPLETED",
        exit_code=0,
        name=one.job_name,
        partition="debug",
        qos="normal",
        nodes=f"n{number % 500}",
        submitted_at=NOW,
        started_at=NOW,
        ended_at=end,
        stdout=f"{one.working_directory}/slurm-{one.job_id}.out",
        stderr=f"{one.working_directory}/slurm-{one.job_id}.err",
    )
    return replace(one, phase=Phase.SUCCEEDED, confirmed=True, status=status, final_at=end)


def journal_of(waiting: list[JobRecord], user: UnixUser, ended: int) -> bytes:
    """The file of a journal with these, and so many more that have ended."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = Path(folder) / FILE_NAME
        database = Database(path)
        first = len(waiting)
        for start in range(first, first + ended, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, first + ended))
            batch = tuple(replace(has_ended(number, user), revision=number + 1) for number in numbers)
            database.commit([JournalBatch(save=batch)])
        saved = tuple(replace(one, revision=first + ended + number) for number, one in enumerate(waiting, 1))
        database.commit([JournalBatch(save=saved)])
        database.close()
        return path.read_bytes()


def queue_text(ours: list[JobRecord], foreign: int) -> bytes:
    """The records of squeue, ours spread among the others."""
    records = [fields_of(one) for one in ours]
    step = max(1, foreign // max(1, len(records)))
    lines: list[str] = []
    for number in range(foreign):
        if number % step == 0 and records:
            lines.append(records.pop())
        lines.append(foreign_fields(number))
    return "".join(lines + records).encode()


def fields_of(one: JobRecord) -> str:
    shown = {
        "JobID": str(one.job_id),
        "UserID": str(one.user.uid),
        "UserName": one.user.name,
        "Name": one.job_name,
        "Comment": one.mark,
        "WorkDir": one.working_directory,
    }
    return row(shown)


def foreign_fields(number: int) -> str:
    uid = 5000 + number % 300
    shown = {
        "JobID": str(FIRST_FOREIGN + number),
        "UserID": str(uid),
        "UserName": f"user{uid}",
        "Name": f"simulation-{number}",
        "Comment": "(null)",
        "WorkDir": f"/home/user{uid}/projects/simulation-{number}",
    }
    return row(shown)


def row(shown: dict[str, str]) -> str:
    """A job that waits, as squeue prints it."""
    job_id, directory = shown["JobID"], shown["WorkDir"]
    others = {
        "ArrayJobID": job_id, "ArrayTaskID": "N/A", "HetJobID": "0", "HetJobOffset": "0", "State": "PENDING",
        "exit_code": "0:0", "RestartCnt": "0", "Requeue": "1", "SubmitTime": "1763971200",
        "StartTime": "N/A", "EndTime": "N/A", "Reason": "Priority", "Partition": "debug", "Account": "(null)",
        "QOS": "normal", "NodeList": "", "STDOUT": f"{directory}/slurm-%j.out",
        "STDERR": f"{directory}/slurm-%j.err",
    }  # fmt: skip
    fields = {**others, **shown}
    return FIELD_END.decode().join(fields[name] for name in FIELDS) + RECORD_END.decode() + "\n"
