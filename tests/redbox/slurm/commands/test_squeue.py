"""The queue as each release prints it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.slurm.commands import squeue
from redbox.slurm.text.record_format import ParseReport, RecordFormat
from redbox.slurm.text.states import Exit
from tests.redbox.slurm.captured import RELEASES, job_ids, output, queue_rows
from tests.redbox.slurm.factories import PLAIN


def render(frame: RecordFormat, *records: dict[str, str]) -> str:
    lines = (frame.field_end.join(record[name] for name in squeue.FIELDS) for record in records)
    return "".join(line + frame.record_end + "\n" for line in lines)


def read(text: str, frame: RecordFormat) -> tuple[list[squeue.QueueRow], ParseReport]:
    tally = ParseReport()
    return list(squeue.read_rows(text, frame, tally)), tally


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("name", "state", "end"),
    [
        ("ok", "COMPLETED", Exit(code=0)),
        ("exit1", "FAILED", Exit(code=1)),
        ("exit72", "FAILED", Exit(code=72)),
        ("exit200", "FAILED", Exit(code=200)),
        ("kill9", "FAILED", Exit(signal=9)),
        ("kill15", "FAILED", Exit(signal=15)),
        ("nodir", "FAILED", Exit(signal=53)),
        ("timeout", "TIMEOUT", Exit(signal=15)),
        ("cancelled", "CANCELLED", Exit(signal=15)),
        ("held", "PENDING", Exit()),
        ("running", "RUNNING", Exit()),
    ],
)
def test_each_end_reads_the_same_on_every_release(release: str, name: str, state: str, end: Exit) -> None:
    rows, _ = queue_rows(release)
    row = next(row for row in rows if row.job_id == job_ids(release)[name])
    assert (row.state, row.exit) == (state, end)
    assert (row.uid, row.user, row.account, row.qos) == (2001, "alice", "physics", "normal")
    assert row.comment.startswith("rb1.key-")


@pytest.mark.parametrize("release", RELEASES)
def test_even_with_guessed_tokens_a_forger_only_loses_his_own_record(release: str) -> None:
    rows, tally = queue_rows(release)
    assert tally.dropped > 0
    assert not tally.complete
    assert {row.user for row in rows} == {"alice"}


@pytest.mark.parametrize("release", RELEASES)
def test_times_that_are_only_expected_are_not_told(release: str) -> None:
    rows, _ = queue_rows(release)
    by_id = {row.job_id: row for row in rows}
    begin, running, held = (by_id[job_ids(release)[name]] for name in ("begin", "running", "held"))
    assert begin.started_at is None
    assert running.started_at is not None
    assert running.ended_at is None
    assert held.reason == "JobHeldUser"
    assert held.submitted_at is not None


def test_a_whole_record_is_read() -> None:
    frame = RecordFormat.new(squeue.FIELDS)
    ended = PLAIN | {
        "State": "FAILED",
        "exit_code": "3:0",
        "StartTime": "1795254170",
        "EndTime": "1795254180",
        "NodeList": "n[1-2]",
        "RestartCnt": "2",
        "Requeue": "0",
    }
    rows, tally = read(render(frame, ended), frame)
    row = rows[0]
    assert tally.complete
    assert row.exit == Exit(code=3)
    assert (row.restarts, row.requeue, row.nodes) == (2, False, "n[1-2]")
    assert row.started_at == datetime(2026, 11, 21, 9, 42, 50, tzinfo=UTC)
    assert row.ended_at == datetime(2026, 11, 21, 9, 43, tzinfo=UTC)
    assert (row.comment, row.stderr, row.het_job_id, row.array_task) == ("", None, None, None)


@pytest.mark.parametrize("broken", [{"JobID": "x"}, {"UserID": ""}, {"State": ""}, {"ArrayJobID": "7_1"}])
def test_a_record_without_id_uid_or_state_is_dropped_and_counted(broken: dict[str, str]) -> None:
    frame = RecordFormat.new(squeue.FIELDS)
    rows, tally = read(render(frame, PLAIN | broken, PLAIN), frame)
    assert [row.job_id for row in rows] == ["7"]
    assert tally.dropped == 1


@given(st.text(), st.text(), st.text())
def test_free_text_arrives_as_it_was_written(name: str, comment: str, directory: str) -> None:
    frame = RecordFormat.new(squeue.FIELDS)
    record = PLAIN | {"Name": name, "Comment": comment, "WorkDir": directory}
    rows, tally = read(render(frame, record), frame)
    assert tally.complete
    assert rows[0].name == name
    assert rows[0].comment == ("" if comment == "(null)" else comment)


def test_an_unchanged_record_is_the_same_row_in_the_next_look() -> None:
    reader = squeue.RowReader()

    def look(*records: dict[str, str]) -> list[squeue.QueueRow]:
        frame = RecordFormat.new(squeue.FIELDS)
        reader.start_poll()
        return list(reader.read(render(frame, *records), frame, ParseReport()))

    other = PLAIN | {"JobID": "8", "ArrayJobID": "8"}
    first, second = look(PLAIN, other), look(PLAIN, other | {"State": "RUNNING"})
    assert second[0] is first[0]
    assert (first[1].state, second[1].state) == ("PENDING", "RUNNING")
    assert look() == []
    assert look(PLAIN)[0] == first[0]


def test_a_record_that_holds_the_separator_of_remembered_records_is_read_anew() -> None:
    reader = squeue.RowReader()
    shifted = [
        PLAIN | {"Name": "a\x1fb", "Comment": "c"},
        PLAIN | {"Name": "a", "Comment": "b\x1fc"},
    ]
    names = []
    for record in shifted:
        frame = RecordFormat.new(squeue.FIELDS)
        reader.start_poll()
        names += [row.name for row in reader.read(render(frame, record), frame, ParseReport())]
    assert names == ["a\x1fb", "a"]


def test_records_that_cannot_matter_are_left_out_by_id_and_comment() -> None:
    frame = RecordFormat.new(squeue.FIELDS)
    task = PLAIN | {"JobID": "9", "ArrayJobID": "5", "ArrayTaskID": "1"}
    marked = PLAIN | {"JobID": "10", "ArrayJobID": "10", "Comment": "rb1.x"}
    part = PLAIN | {"JobID": "6", "ArrayJobID": "6", "HetJobID": "5", "HetJobOffset": "1"}
    text = render(frame, PLAIN, task, marked, part)
    rows = squeue.RowReader().read(
        text, frame, ParseReport(), lambda job_id, mark: job_id == "5" or mark == "rb1.x"
    )
    assert [row.job_id for row in rows] == ["9", "10", "6"]


def test_the_whole_queue_is_asked_for_without_loops_clusters_or_hidden_parts() -> None:
    argv = squeue.all_jobs_argv(["2001", "2002"])
    assert argv[:5] == ["squeue", "--noheader", "--all", "--local", "--states=all"]
    assert argv[-1] == "--user=2001,2002"
    assert "--array" not in argv
    environment = squeue.environment(RecordFormat(("JobID", "Name"), "~f~", "~r~"))
    assert environment["SLURM_BITSTR_LEN"] == "0"
    assert environment["SQUEUE_FORMAT2"] == "JobID:~f~,Name:~r~"
    assert "~" not in "".join(argv), "every user of the host can read arguments"


def test_the_states_alone_are_those_of_the_whole_queue() -> None:
    release = "26.05"
    alone = output(release, "states.txt")
    rows, _ = queue_rows(release)
    shown = {f"{row.array_job_id} {row.job_id} {row.state}" for row in rows}
    assert shown <= set(alone.splitlines())
    array = job_ids(release)["array"]
    assert squeue.fingerprint(alone, [array]) != squeue.fingerprint(
        alone.replace("RUNNING", "FAILED"), [array]
    )
    assert squeue.fingerprint(alone, [array]) == squeue.fingerprint(
        alone.replace("TIMEOUT", "FAILED"), [array]
    )


@pytest.mark.parametrize("release", RELEASES)
def test_what_was_captured_holds_hostile_text(release: str) -> None:
    assert "two\nlines|~R~" in output(release, "squeue.txt")
