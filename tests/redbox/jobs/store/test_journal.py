from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redbox.core.domain import JobKey, Owner, UnixUser
from redbox.core.observations import ObservedStatus, TaskObservation
from redbox.jobs.errors import (
    JobsError,
    JournalError,
    JournalFull,
    JournalInUse,
    JournalMisplaced,
    JournalUnreadable,
    Tombstoned,
)
from redbox.jobs.record.packed_records import unpack
from redbox.jobs.record.record import JobRecord, Stage, Tombstone
from redbox.jobs.store.journal import FILE_NAME, Journal, OnCommitted
from redbox.jobs.store.journal_facts import number_in, time_in
from redbox.jobs.store.journal_lock import file_system_type, is_network
from redbox.jobs.store.sqlite import SCHEMA, Database, JournalBatch
from redbox_api.models import Phase
from tests.redbox.jobs.harness import World, caller, request

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
OWNER = Owner("kube", "physics", "default", "uid-1")
RECORD = JobRecord(
    key=JobKey(OWNER, "key", 2),
    user=UnixUser("alice", 2001),
    mark="rb1.key",
    body_id="body",
    spec_digest="d1",
    created_at=NOW,
    last_submit_at=NOW,
    stage=Stage.BOUND,
    job_id="17",
    phase=Phase.FAILED,
    warnings=("one", "two"),
    status=ObservedStatus(
        state="FAILED", exit_code=3, ended_at=NOW, tasks=(TaskObservation(1, "17_1", "FAILED", 3, 0),)
    ),
    final_at=NOW,
    revision=4,
)


def test_what_was_committed_is_there_after_the_file_is_opened_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "journal.db")
    stone = Tombstone(OWNER, "other", 0, NOW)
    database.commit([JournalBatch(save=(RECORD,), tombstones=(stone,), facts=(("a", "b"),))])
    database.close()
    contents = Database(tmp_path / "journal.db").load()
    assert [unpack(outline) for outline in contents.records] == [RECORD]
    assert contents.tombstones == (stone,)
    assert contents.facts["a"] == "b"


def test_what_was_forgotten_is_gone(tmp_path: Path) -> None:
    database = Database(tmp_path / "journal.db")
    stone = Tombstone(OWNER, "other", 0, NOW)
    database.commit([JournalBatch(save=(RECORD,), tombstones=(stone,))])
    database.commit([JournalBatch(forget=(RECORD.key,), lift=(stone,))])
    assert (*database.load().records, *database.load().tombstones) == ()


def test_the_epoch_belongs_to_the_journal(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first = Database(tmp_path / "journal.db").load().facts["epoch"]
    assert Database(tmp_path / "journal.db").load().facts["epoch"] == first
    assert Database(tmp_path / "other" / "journal.db").load().facts["epoch"] != first


def test_commits_are_on_the_disk_before_they_are_answered(tmp_path: Path) -> None:
    database = Database(tmp_path / "journal.db")
    settings = {
        name: database._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2}  # 2 is FULL


def test_nobody_else_can_read_a_journal(tmp_path: Path) -> None:
    os.umask(0o022)
    database = Database(tmp_path / "journal.db")
    database.commit([JournalBatch(save=(RECORD,))])
    assert len(list(tmp_path.iterdir())) == 3  # with its write-ahead log and the log's index
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    database.close()


def test_a_second_red_box_is_refused_by_name(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    with pytest.raises(JournalInUse, match=f"process {os.getpid()}.*serves one server"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


def test_a_journal_of_a_newer_release_is_refused_and_its_lock_given_back(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.execute(f"PRAGMA user_version = {len(SCHEMA) + 1}")
    db.close()
    for _ in range(2):
        with pytest.raises(JournalUnreadable, match="newer red-box"):
            Journal(tmp_path)


def test_a_damaged_journal_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 1000)
    with pytest.raises(JournalUnreadable, match="redbox recover"):
        Journal(tmp_path)


@pytest.mark.parametrize("text", ["'{'", "'[]'", "'{}'", "CAST(x'ff' AS TEXT)"])
def test_a_record_that_cannot_be_read_is_said_with_the_way_out(tmp_path: Path, text: str) -> None:
    Journal(tmp_path).close()
    with sqlite3.connect(tmp_path / FILE_NAME) as db:
        db.execute(f"INSERT INTO jobs VALUES ('c', 'n', 'a', 'u', 'k', 1, 1, 'm', '7', NULL, 1, {text})")
    db.close()
    with pytest.raises(JournalUnreadable, match="redbox recover"):
        Journal(tmp_path)


def test_damage_that_sqlite_quotes_is_said_in_one_line(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE\x80\nABLE"))
    with pytest.raises(JournalUnreadable, match="redbox recover") as said:
        Journal(tmp_path)
    assert str(said.value).isprintable()


WHOLE = (
    '{"mark":"m","body_id":"b","created_at":1,"last_submit_at":1,"stage":"bound","phase":"Succeeded",'
    '"job_id":"7","final_at":2,"user":["alice",1],"seen":{}}'
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"final_at":2', '"final_at":1e300'),
        ('"final_at":2', '"final_at":"2"'),
        ('"job_id":"7"', '"job_id":7'),
        ('"mark":"m"', '"mark":"\\ud800"'),
        ('"user":["alice",1]', '"user":["alice","1"]'),
        ('"seen":{}', '"seen":5'),
        ('"seen":{}', '"seen":{"exit_code":"0"}'),
        ('"seen":{}', '"seen":{"tasks":[[0,7,"COMPLETED"]]}'),
        ('"seen":{}', '"seen":{"task_groups":[["0-99999999999","COMPLETED"]]}'),
        ('"seen":{}', '"seen":{"component_nodes":5}'),
        ('"seen":{}', '"warnings":[5],"seen":{}'),
        ('"seen":{}', '"dependencies":[["afterok",5,null]],"seen":{}'),
        ('"seen":{}', '"limits":[[5],null],"seen":{}'),
        ('"seen":{}', '"seen":' + '{"a":' * 20_000 + "0" + "}" * 20_001),
    ],
)
def test_a_damaged_row_of_a_job_that_has_ended_is_said_at_the_start(
    tmp_path: Path, old: str, new: str
) -> None:
    """And not when the job is listed, which would fail the lists of all its owner's jobs."""
    Journal(tmp_path).close()
    insert = "INSERT INTO jobs VALUES ('c', 'n', 'a', 'u', ?, 1, 1, 'm', '7', 2.0, 1, ?)"
    assert old in WHOLE
    for key, text in (("whole", WHOLE), ("damaged", WHOLE.replace(old, new))):
        with sqlite3.connect(tmp_path / FILE_NAME) as db:
            db.execute(insert, (key, text))
        db.close()
        if key == "whole":
            Journal(tmp_path).close()
    with pytest.raises(JournalUnreadable, match=r"the row of c/n/a/damaged.*redbox recover"):
        Journal(tmp_path)


@pytest.mark.parametrize("read", [number_in, time_in])
@pytest.mark.parametrize("text", ["", "x", "nan", "9" * 5000, "1e300"])
def test_a_fact_that_is_no_number_is_said_by_its_name(
    read: Callable[[Mapping[str, str], str], object], text: str
) -> None:
    with pytest.raises(JournalUnreadable, match=r"`of a fact` cannot be read.*redbox recover"):
        read({"of a fact": text}, "of a fact")


def test_a_missing_directory_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(JournalMisplaced, match="does not exist: make it"):
        Journal(tmp_path / "nowhere")


MOUNTS = b"""\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 30 8:2 / /home/local rw - xfs /dev/sdb1 rw
32 22 0:41 / /scratch\\040space rw shared:1 - lustre lnet rw
33 22 0:42 / /fuse rw - fuse.sshfs sshfs rw
34 22 8:3 / /usb rw - fuseblk /dev/sdc rw
35 22 0:43 / /twice rw - ext4 /dev/sdd rw
36 35 0:44 / /twice rw - nfs server:/x rw
37 30 0:45 / /home/alice/caf\xe9 rw - fuse.sshfs x:/ rw
38 30 0:46 / /home/alice/a\x0bb\rc\xe2\x80\xa8d rw - fuse.sshfs x:/ rw
"""  # users choose the names of what they mount


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/lib/redbox", "ext4", False),
        ("/home/alice", "nfs4", True),
        ("/homely", "ext4", False),
        ("/home/local/redbox", "xfs", False),
        ("/scratch space/x", "lustre", True),
        ("/fuse", "fuse.sshfs", True),
        ("/usb/redbox", "fuseblk", False),
        ("/twice/x", "nfs", True),
        (os.fsdecode(b"/home/alice/caf\xe9/x"), "fuse.sshfs", True),
        ("/home/alice/a\x0bb\rc\u2028d", "fuse.sshfs", True),
    ],
)
def test_the_mount_that_a_path_is_on_decides(path: str, kind: str, *, network: bool) -> None:
    assert file_system_type(path, MOUNTS) == kind
    assert is_network(kind) is network


def test_a_journal_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox.jobs.store.journal_lock.file_system_type", lambda _path, _mounts: "nfs4")
    with pytest.raises(JournalMisplaced, match=r"network file system \(nfs4\)"):
        Journal(tmp_path)


def fill(world: World) -> None:
    """No page more: SQLite answers as it does on a full disk."""
    world.journal._database._db.execute("PRAGMA max_page_count = 1")


def test_a_full_disk_refuses_new_submits_and_goes_on_serving_and_heals(world: World) -> None:
    script = "#!/bin/sh\n"
    world.run(world.jobs.put(caller(), "first", 1, request(script)))
    fill(world)
    refusals = []
    for number in range(60):
        task = world.begin(world.jobs.put(caller(), f"k{number}", 1, request(script, name="n" * 120)))
        world.settle()
        refusals.append(task.exception())
    full = [error for error in refusals if error is not None]
    assert full
    assert all(isinstance(error, JournalFull) and error.retry for error in full)
    without_outcome = len(world.slurm.ever) - (61 - len(full))
    assert without_outcome <= 1  # its intent was the last that had room
    assert world.run(world.jobs.get(caller(), "first")).job_id == "1"
    world.journal._database._db.execute("PRAGMA max_page_count = 1073741823")
    assert world.run(world.jobs.put(caller(), "k59", 1, request(script, name="n" * 120)))[1]
    world.advance(120)
    for number in range(60):
        world.run(world.jobs.put(caller(), f"k{number}", 1, request(script, name="n" * 120)))
    assert len(world.slurm.ever) == 61


def test_what_cannot_be_written_takes_nothing_else_with_it(world: World) -> None:
    odd = caller(namespace="\ud800")
    tasks = [
        world.begin(world.jobs.put(who, "key", 1, request()))
        for who in (caller(), odd, caller(namespace="chemistry"))
    ]
    world.settle()
    outcomes = [task.exception() for task in tasks]
    assert outcomes[0] is None
    assert isinstance(outcomes[1], JobsError)
    assert outcomes[2] is None


def commit_together(world: World, *changes: tuple[JournalBatch, OnCommitted]) -> None:
    async def commit() -> None:
        loop = asyncio.get_running_loop()
        world.journal._commit([(loop, *change) for change in changes])

    world.run(commit())
    world.settle()


def test_a_change_whose_answer_fails_leaves_those_of_its_commit_answered(world: World) -> None:
    answers: list[JournalError | None] = []

    def fail(_: JournalError | None) -> None:
        raise ZeroDivisionError

    fact = JournalBatch(facts=(("a", "b"),))
    commit_together(world, (fact, fail), (fact, answers.append))
    assert answers == [None]


def test_a_number_that_is_too_large_is_an_answer_too(world: World) -> None:
    answers: list[JournalError | None] = []
    too_large = JournalBatch(tombstones=(Tombstone(OWNER, "other", 2**70, NOW),))
    fact = JournalBatch(facts=(("a", "b"),))
    commit_together(world, (too_large, answers.append), (fact, answers.append))
    assert [type(answer) for answer in answers] == [JournalError, type(None)]


def test_old_final_jobs_and_old_tombstones_are_removed_and_living_ones_stay(world: World) -> None:
    world.run(world.jobs.put(caller(), "ended", 1, request()))
    world.run(world.jobs.put(caller(), "living", 1, request()))
    world.begin(world.jobs.delete(caller(), "never"))
    world.settle()
    world.slurm.end("1")
    world.advance(400)
    world.clock.advance_to(world.clock.elapsed + 32 * 86400.0)
    world.advance(1300)
    assert [record.key.key for record in world.jobs] == ["living"]
    world.restart()
    assert [record.key.key for record in world.jobs] == ["living"]
    assert world.run(world.jobs.put(caller(), "never", 1, request()))[1]


def test_a_tombstone_outlives_a_restart(world: World) -> None:
    with pytest.raises(JobsError):
        world.run(world.jobs.delete(caller(), "never"))
    world.restart()
    with pytest.raises(Tombstoned):
        world.run(world.jobs.put(caller(), "never", 1, request()))
