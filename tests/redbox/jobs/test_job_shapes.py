"""A job is taken for the record's only with the shape that was submitted; of another one nothing follows."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from redbox.core.domain import JobShape
from redbox.core.observations import Observation
from redbox.core.workload_manager import AccountingSnapshot
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch, match
from redbox.jobs.record.codec import from_text, to_text
from redbox.jobs.submit.submit_request import shape_of
from redbox.jobs.submit.unconfirmed import Absence, settle_intent
from redbox_api.models import JobRequest, Phase
from tests.redbox.jobs.factories import MACHINE, NOW, RECORD, seen
from tests.redbox.jobs.harness import World, caller, request
from tests.redbox.jobs.poll.test_poller import current

PLAIN = replace(RECORD, shape=JobShape.PLAIN, confirmed=True)
FORGED = seen("FAILED", exit_code=7, shape=JobShape.HETEROGENEOUS)


def shown(job: Observation) -> SnapshotIndex:
    return SnapshotIndex(NOW, complete=True, by_mark={job.mark: [job]}, by_id={job.job_id: [job]})


@pytest.mark.parametrize("shape", [JobShape.ARRAY, JobShape.HETEROGENEOUS])
def test_a_plain_job_is_not_what_the_queue_shows_as_many(shape: JobShape) -> None:
    assert match(PLAIN, shown(seen("RUNNING", shape=shape))) == SnapshotMatch(unclear=True)


@pytest.mark.parametrize(
    ("submitted", "shape"),
    [
        (JobShape.PLAIN, JobShape.PLAIN),
        (JobShape.PLAIN, None),
        (None, JobShape.ARRAY),
        (JobShape.ARRAY, JobShape.ARRAY),
        (JobShape.ARRAY, JobShape.PLAIN),  # its waiting tasks were cancelled
    ],
)
def test_a_job_that_may_be_what_was_submitted_is_the_records(
    submitted: JobShape | None, shape: JobShape | None
) -> None:
    job = seen("CANCELLED", shape=shape)
    assert match(replace(RECORD, shape=submitted), shown(job)).job is job


def test_what_the_accounting_shows_in_another_shape_settles_no_intent() -> None:
    intent = replace(PLAIN, stage=RECORD.stage.INTENT, job_id=None)
    absence = Absence(NOW, NOW)
    history = AccountingSnapshot((FORGED,), complete=True)
    assert settle_intent(intent, history, absence, NOW + timedelta(hours=1), MACHINE) == intent
    real = AccountingSnapshot((replace(FORGED, shape=JobShape.PLAIN),), complete=True)
    assert settle_intent(intent, real, absence, NOW, MACHINE).phase is Phase.FAILED


def test_a_missing_job_does_not_end_by_a_row_of_another_shape(world: World) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    world.advance(5)
    (job_id,) = world.slurm.jobs
    world.slurm.end(job_id, "FAILED", 7)
    world.slurm.purge(job_id)
    rows = world.slurm.rows
    rows[:] = [(at, replace(row, shape=JobShape.ARRAY)) for at, row in rows]
    world.advance(1200)
    assert current(world, "key").phase not in {Phase.FAILED, Phase.LOST}
    rows[:] = [(at, replace(row, shape=JobShape.PLAIN)) for at, row in rows]
    world.advance(120)
    assert current(world, "key").phase is Phase.FAILED


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({"batch": "#!/bin/sh\ntrue\n"}, JobShape.PLAIN),
        ({"batch": "#!/bin/sh\n#SBATCH -N 2 --time=5\n"}, JobShape.PLAIN),
        ({"batch": "#!/bin/sh\n", "array": "0-3"}, JobShape.ARRAY),
        ({"batch": "#!/bin/sh\n#SBATCH --arr 0-3\n"}, JobShape.ARRAY),
        ({"batch": "#!/bin/sh\n#SBATCH -Ha0-3\n"}, JobShape.ARRAY),
        ({"batch": "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\n"}, JobShape.HETEROGENEOUS),
        ({"batch": "#!/bin/sh\ncat <<E\n#SBATCH hetjob\nE\n"}, None),
        ({"batch": "#!/bin/sh\n#PBS -J 0-3\n"}, None),
        ({"batch": "#!/bin/sh\n#SBATCH --of-a-later-release -a 1-3\n"}, None),
        ({"container": {"image": "docker://debian"}}, JobShape.PLAIN),
    ],
)
def test_the_shape_of_a_request_is_known_only_where_it_is_certain(
    fields: dict[str, object], shape: JobShape | None
) -> None:
    assert shape_of(JobRequest.model_validate(fields)) is shape


@pytest.mark.parametrize("shape", [None, *JobShape])
def test_the_shape_is_in_the_journal(shape: JobShape | None) -> None:
    record = replace(RECORD, shape=shape)
    assert from_text(record.key, record.revision, to_text(record)) == record
    assert ("shape" in to_text(record)) is (shape is not None)
