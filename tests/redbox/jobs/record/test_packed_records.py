"""Jobs that have ended take little room, and come back as they were."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from redbox.core.domain import JobKey, Owner, UnixUser
from redbox.core.observations import ObservedStatus, TaskObservation
from redbox.jobs.record.codec import to_text
from redbox.jobs.record.packed_records import PackedRecord, pack, summary_from_text, unpack
from redbox.jobs.record.record import JobRecord, Stage
from redbox_api.models import Phase
from tests.redbox.jobs.harness import World, caller, request

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ENDED = JobRecord(
    key=JobKey(Owner("kube", "physics", "default", "uid-1"), "3f2b7c1e-0000-4000-8000-000000000001", 2),
    user=UnixUser("alice", 2001),
    mark="rb1.3f2b7c1e.2.ghbq36a4.oqm3jj45vgz4j2q5s4bv.unfnp74uplxnw45d.a2ab56dwi3if5gxuxceb",
    body_id="body",
    created_at=NOW,
    last_submit_at=NOW,
    stage=Stage.BOUND,
    job_id="17",
    phase=Phase.FAILED,
    message="It exited with code 3.",
    status=ObservedStatus(state="FAILED", exit_code=3, ended_at=NOW, stdout="/home/alice/ü/out"),
    final_at=NOW,
    revision=4,
)
TASKS = (
    TaskObservation(0, "17_0", "COMPLETED", 0, 0, restarts=2),
    TaskObservation(1, "17_1", "FAILED", 3, 0),
)
ARRAY = replace(ENDED, status=ObservedStatus(array_size=2, tasks=TASKS), appends=True)
HET = replace(ENDED, status=ObservedStatus(nodes="n1,n2", component_nodes=("n1", "n2")))
LONG = replace(ENDED, warnings=tuple(f"{number} {'x' * 900}" for number in range(8)))


@pytest.mark.parametrize("record", [ENDED, ARRAY, HET, LONG], ids=["plain", "array", "het", "long"])
def test_a_job_that_has_ended_is_packed_and_comes_back_as_it_was(record: JobRecord) -> None:
    packed = pack(record)
    assert isinstance(packed, PackedRecord)
    assert unpack(packed) == record
    assert (packed.key, packed.user, packed.mark) == (record.key, record.user, record.mark)
    assert (packed.stage, packed.phase, packed.revision) == (record.stage, record.phase, record.revision)


def test_a_packed_job_takes_a_few_hundred_bytes() -> None:
    packed = pack(ENDED)
    assert isinstance(packed, PackedRecord)
    assert sys.getsizeof(packed.text) < 300


@pytest.mark.parametrize("record", [replace(ENDED, in_queue=True), replace(ENDED, phase=Phase.RUNNING)])
def test_a_job_that_polls_look_for_is_not_packed(record: JobRecord) -> None:
    assert pack(record) is record


@pytest.mark.parametrize(
    "record",
    [
        ENDED,
        ARRAY,
        replace(ENDED, final_at=None),
        replace(ENDED, in_queue=True),
        replace(ENDED, credentials=True),
        replace(ENDED, phase=Phase.RUNNING, final_at=None),
        replace(ENDED, phase=Phase.SUBMITTING, stage=Stage.INTENT, final_at=None),
    ],
)
def test_a_row_of_the_journal_is_summarized_as_its_whole_record_would_be(record: JobRecord) -> None:
    summary = summary_from_text(record.key, record.revision, to_text(record))
    assert summary == pack(record)
    assert unpack(summary) == record


def test_what_has_ended_is_packed_also_by_a_server_that_opens_its_journal(world: World) -> None:
    world.run(world.jobs.put(caller(), "one", 1, request()))
    world.slurm.end("1")
    world.advance(400)
    before = world.run(world.jobs.get(caller(), "one"))
    assert [type(outline) for outline in world.jobs] == [PackedRecord]
    world.restart()
    assert [type(outline) for outline in world.jobs] == [PackedRecord]
    assert world.run(world.jobs.get(caller(), "one")) == before
    assert world.run(world.jobs.list(caller())).items == [before]
