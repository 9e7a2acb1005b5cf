"""Memory of the job table: bytes per job, of 10,000 that half run and have half ended, as polls fill it.

Run: python -m tests.bench.memory_of_jobs [jobs]
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from redbox.core.domain import JobKey, Owner, UnixUser
from redbox.core.observations import Observation
from redbox.core.workload_manager import QueueSnapshot
from redbox.jobs.poll.poller import after_poll
from redbox.jobs.queue_snapshot import index_snapshot, match
from redbox.jobs.record.marks import Marks
from redbox.jobs.record.packed_records import unpack
from redbox.jobs.record.record import JobRecord, Stage, lineage
from redbox.jobs.record.state_machine import StateMachine
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.record_store import Change, RecordStore
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Phase

NOW = datetime.now(UTC)
MARKS = Marks(bytes(32), "hpc1")
ALICE = UnixUser("alice", 2001)


def resident() -> int:
    """Bytes, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def record(number: int) -> JobRecord:
    """As a PUT leaves it."""
    owner = Owner("kube", f"namespace-{number % 50}", "default", "7d444840-9dc0-11d1-b245-5ffdce74fad2")
    key = JobKey(owner, f"{number:08x}-9dc0-11d1-b245-5ffdce74fad2", 1)
    return JobRecord(
        key=key,
        user=ALICE,
        mark=MARKS.make(key, "a" * 16, ALICE.uid),
        body_id="a" * 16,
        body_digest=f"{number:016d}",
        spec_digest=f"{number:064x}",
        job_name=f"job-{number}",
        working_directory=f"/home/alice/redbox/physics/job-{number}-{number:08x}",
        created_at=NOW,
        last_submit_at=NOW,
        stage=Stage.BOUND,
        job_id=str(1_000_000 + number),
        bound_at=NOW,
        phase=Phase.PENDING,
    )


def shown(one: JobRecord, number: int) -> Observation:
    """As squeue shows it."""
    directory = one.working_directory
    return Observation(
        job_id=str(1_000_000 + number),
        uid=ALICE.uid,
        mark=str(one.mark.encode(), "ascii"),
        state="RUNNING" if number % 2 else "COMPLETED",
        live=True,
        name=one.job_name,
        user="alice",
        partition="debug",
        account="physics",
        qos="normal",
        nodes=f"n{number % 500}",
        exit_code=0,
        submitted_at=NOW + timedelta(seconds=number),
        started_at=NOW + timedelta(seconds=number),
        stdout=f"{directory}/slurm-{number}.out",
        stderr=f"{directory}/slurm-{number}.err",
        working_directory=str(directory.encode(), "ascii"),
    )


async def fill(store: RecordStore, jobs: int) -> None:
    """Through the record store, as the server does."""
    await asyncio.gather(*(_submit(store, record(number)) for number in range(jobs)))


async def _submit(store: RecordStore, one: JobRecord) -> None:
    await store.change([lineage(one.key.owner, one.key.key)], lambda: Change(save=(one,)))


async def look(store: RecordStore) -> float:
    """One poll that shows them all; seconds that it took to sort out and commit."""
    machine = StateMachine(JOB_STATES, JobsSettings())
    jobs = tuple(shown(unpack(one), int(one.key.key[:8], 16)) for one in store.index)
    began = time.perf_counter()
    poll = QueueSnapshot(at=NOW, took_s=0.1, jobs=jobs, complete=True)
    seen = index_snapshot(poll, NOW + timedelta(seconds=1), store.index)
    await store.change_free(
        store.index.watched(), lambda one: after_poll(one, match(one, seen), seen, NOW, machine)
    )
    return time.perf_counter() - began


async def measure(jobs: int) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        journal = Journal(Path(directory))
        store = RecordStore(journal, deletions=10_000)
        before = resident()
        began = time.perf_counter()
        await fill(store, jobs)
        print(f"{jobs} intents committed in {time.perf_counter() - began:.2f} s")
        print(f"a look in which all of them change: {await look(store):.2f} s")
        print(f"a look in which none changes: {await look(store):.3f} s")
        print(f"a look in which none changes, again: {await look(store):.3f} s")
        gc.collect()
        after = resident()
        print(f"resident {before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after")
        print(f"{(after - before) / jobs:.0f} bytes per job")
        journal.close()
        command = [sys.executable, "-m", "tests.bench.memory_of_jobs", "--open", directory]
        await (await asyncio.create_subprocess_exec(*command)).wait()
        began = time.perf_counter()
        again = Journal(Path(directory))
        RecordStore(again, deletions=10_000)
        print(f"opened again in {time.perf_counter() - began:.2f} s")
        again.close()


def open_only(directory: Path) -> None:
    """What the records themselves take, in a process that did nothing else."""
    before = resident()
    journal = Journal(directory)
    store = RecordStore(journal, deletions=10_000)
    print(f"a fresh server: {(resident() - before) / len(store.index):.0f} bytes per job")
    journal.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--open"]:
        open_only(Path(sys.argv[2]))
    else:
        asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
