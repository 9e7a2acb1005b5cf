"""The accounting as each release prints it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.core.observations import Observation
from redbox.slurm.commands import sacct
from redbox.slurm.text.record_format import ParseReport
from redbox.slurm.views.accounting_jobs import build_accounting_jobs, with_complete_exits
from tests.redbox.slurm.captured import RELEASES, accounting_fields, accounting_rows, job_ids, output
from tests.redbox.slurm.fakes import accounted

FULL = dict.fromkeys((*sacct.FIELDS, *sacct.TEXTS), "") | {
    "JobID": "7",
    "JobIDRaw": "7",
    "UID": "2001",
    "State": "FAILED",
    "ExitCode": "1:0",
    "Submit": "1795254165",
    "Start": "1795254170",
    "End": "1795254180",
}


def remembered(release: str) -> dict[str, Observation]:
    """The jobs of the set by what became of them, with whole exit codes where the release has them."""
    rows, _ = accounting_rows(release)
    whole = with_complete_exits(rows, sacct.read_exit_codes(output(release, "sacct.json").encode()))
    by_id = {job.job_id: job for job in build_accounting_jobs(whole)}
    return {name: by_id[job_id] for name, job_id in job_ids(release).items() if job_id in by_id}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("name", "state", "code", "signal"),
    [
        ("ok", "COMPLETED", 0, None),
        ("exit1", "FAILED", 1, None),
        ("exit72", "FAILED", 72, None),
        ("kill9", "FAILED", None, 9),
        ("kill15", "FAILED", None, 15),
        ("nodir", "FAILED", None, 53),
    ],
)
def test_each_end_is_remembered(
    release: str, name: str, state: str, code: int | None, signal: int | None
) -> None:
    job = remembered(release)[name]
    assert (job.state, job.exit_code, job.signal) == (state, code, signal)
    assert not job.live


def test_a_job_that_ran_into_its_limit_has_no_exit_code_of_its_own() -> None:
    signals = {release: remembered(release)["timeout"].signal for release in RELEASES}
    assert signals == {"22.05": 15, "24.11": None, "26.05": None}
    assert {remembered(release)["timeout"].exit_code for release in RELEASES} == {None}


@pytest.mark.parametrize("text", ["CANCELLED by 2001", "CANCELLED by 0"])
def test_who_cancelled_is_told(text: str) -> None:
    assert build_accounting_jobs([row(State=text, ExitCode="0:0")])[0].cancelled_by == int(
        text.rpartition(" ")[2]
    )


def test_what_an_array_still_waits_for_is_counted() -> None:
    array = build_accounting_jobs([row(JobID="7_[5-9%2]", State="PENDING"), row(JobID="7_1", JobIDRaw="8")])[
        0
    ]
    assert (array.state, array.pending_tasks, array.array_size) == ("PENDING", 5, 6)


def test_runs_of_one_task_are_not_counted_for_the_others() -> None:
    once = row(JobID="7_1", JobIDRaw="8", State="NODE_FAIL")
    again = row(JobID="7_1", JobIDRaw="8", Start="1795255170")
    (array,) = build_accounting_jobs([row(JobID="7_0"), once, again])
    assert [(task.state, task.restarts) for task in array.tasks] == [("FAILED", 0), ("FAILED", 1)]


@pytest.mark.parametrize("release", RELEASES)
def test_the_mark_is_found_in_the_submit_line_where_comments_are_not_stored(release: str) -> None:
    jobs = remembered(release)
    assert (
        jobs["ok"].mark == "rb1.key-1.1.aaaaaaaa.bbbbbbbbbbbbbbbbbbbb.cccccccccccccccc.dddddddddddddddddddd"
    )


@pytest.mark.parametrize("release", RELEASES)
def test_a_forgers_newlines_and_foreign_tokens_change_nothing(release: str) -> None:
    _, tally = accounting_rows(release)
    assert tally.complete
    jobs = remembered(release)
    assert jobs["forger"].uid == 2002
    assert jobs["forger"].name.startswith("two\nlines|")


@pytest.mark.parametrize("release", RELEASES)
def test_an_array_is_remembered_with_its_tasks(release: str) -> None:
    array = remembered(release)["array_cut"]
    assert array.state == "CANCELLED"
    assert [task.state for task in array.tasks] == ["COMPLETED"] * 2 + ["CANCELLED"] * 4
    held = remembered(release)["array_held"]
    assert (held.state, held.pending_tasks, held.array_size) == ("CANCELLED", 0, 1334)


def test_exit_codes_of_128_and_more_are_whole_where_the_json_has_them() -> None:
    assert remembered("26.05")["exit200"].exit_code == 200
    assert remembered("24.11")["exit200"].exit_code == 200
    assert remembered("22.05")["exit200"].exit_code == 72  # that release has it nowhere


@pytest.mark.parametrize("text", ["", "null", "{}", '{"jobs": [{}]}', '{"jobs": 3}', "[]"])
def test_json_that_is_not_as_expected_has_no_exit_codes(text: str) -> None:
    assert sacct.read_exit_codes(text.encode()) == {}


def test_fields_that_an_old_release_lacks_are_not_asked_for() -> None:
    old, *newer = (sum(accounting_fields(release), ()) for release in RELEASES)
    assert [set(new) - set(old) for new in newer] == [{"Restarts", "StdOut", "StdErr"}] * 2
    assert set(old) >= sacct.NEEDED
    assert sacct.jobs_argv(old, ["1", "2"])[-2:] == ["--format=" + ",".join(old), "--jobs=1,2"]


def test_a_users_jobs_are_asked_for_since_a_moment_in_utc() -> None:
    argv = sacct.user_argv(sacct.FIELDS, "alice", datetime(2026, 11, 21, 9, 30, tzinfo=UTC))
    assert "--starttime=2026-11-21T09:30:00" in argv
    assert sacct.ENVIRONMENT["TZ"] == "UTC"
    assert "--duplicates" in argv


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("sbatch --comment=rb1.a.b -o x", "rb1.a.b"),
        ("sbatch --comment=x --name y --comment=rb1.last", "rb1.last"),
        ("/usr/bin/sbatch --parsable --comment=rb1.own --job-name=x --comment=rb1.forged", "rb1.own"),
        ("sbatch x--comment=no", ""),
        ("", ""),
    ],
)
def test_the_last_comment_of_a_submit_line_is_the_one_that_counted(line: str, mark: str) -> None:
    assert sacct.mark_in(line) == mark


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=300)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(sacct.TEXTS, TEXT)), min_size=1, max_size=4))
def test_no_text_changes_what_is_read_of_another_job(written: list[dict[str, str]]) -> None:
    ids = [{"JobIDRaw": str(number), "Submit": FULL["Submit"]} for number in range(1, len(written) + 1)]
    columns, tally = sacct.text_columns(sacct.TEXTS, 256), ParseReport()
    shown = accounted(*(texts | run for texts, run in zip(written, ids, strict=True)))
    output = shown(sacct.texts_argv(columns, ["1"])).stdout
    read = dict(sacct.read_texts(output, columns, tally))
    assert tally.complete
    assert [run.raw_id for run in read] == [run["JobIDRaw"] for run in ids]
    for texts, found in zip(written, read.values(), strict=True):
        name = texts["JobName"].encode()
        if len(name) <= 256 and not name.endswith(b" ") and found.whole:
            assert found.name == texts["JobName"]
        assert found.whole or any(len(text.encode()) >= 256 for text in texts.values())


@pytest.mark.parametrize("name", ["Account", "JobName", "WorkDir", "StdOut", "StdErr", "SubmitLine"])
def test_a_text_that_is_longer_than_its_column_is_known_to_be_cut(name: str) -> None:
    (found,) = texts_of({name: "x" * 257})
    assert not found.whole
    assert replace(found, whole=True) == sacct.JobTexts()
    (found,) = texts_of({name: "x" * 256})
    assert found.whole


def test_a_long_comment_is_no_mark_whose_rest_would_be_needed() -> None:
    (found,) = texts_of({"Comment": "x" * 4000, "SubmitLine": "sbatch --comment=rb1.mark"})
    assert (found.whole, found.mark) == (True, "x" * 255)


def test_a_mark_that_is_cut_in_a_submit_line_is_none() -> None:
    line = "sbatch --parsable --comment=rb1." + "x" * 300
    (found,) = texts_of({"SubmitLine": line})
    assert (found.whole, found.mark) == (False, "")
    (found,) = texts_of({"SubmitLine": "sbatch --parsable --comment=rb1.x -o " + "y" * 300})
    assert (found.whole, found.mark) == (True, "rb1.x")


def test_columns_that_end_too_early_are_known_to_be_cut() -> None:
    columns, tally = sacct.text_columns(("Comment",), 10), ParseReport()
    output = accounted(FULL)(sacct.texts_argv(columns, ["7"])).stdout
    assert list(sacct.read_texts(output + output[:-1], columns, tally))
    assert tally.cut


def texts_of(*written: dict[str, str]) -> list[sacct.JobTexts]:
    columns, tally = sacct.text_columns(sacct.TEXTS, 256), ParseReport()
    output = accounted(*(FULL | texts for texts in written))(sacct.texts_argv(columns, ["7"])).stdout
    found = [texts for _, texts in sacct.read_texts(output, columns, tally)]
    assert tally.complete
    return found


def row(**changes: str) -> sacct.AccountingRow:
    found = sacct.read_row(FULL | changes)
    assert found is not None
    (texts,) = texts_of(changes)
    return found.with_texts(texts)


def test_each_run_of_a_requeued_job_is_one_observation_in_the_order_of_time() -> None:
    runs = build_accounting_jobs(
        [
            row(State="COMPLETED", ExitCode="0:0", Submit="1795254300", Start="1795254400", End="1795254500"),
            row(State="NODE_FAIL"),
        ]
    )
    assert [(run.state, run.restarts) for run in runs] == [("NODE_FAIL", 0), ("COMPLETED", 1)]


def test_a_run_whose_nodes_were_changed_is_one_run() -> None:
    sizes = [
        row(State="RESIZING", End="1795254190", NodeList="n[1-2]"),
        row(State="RESIZING", Submit="1795254190", Start="1795254190", End="1795254195", NodeList="n1"),
        row(State="COMPLETED", ExitCode="0:0", Submit="1795254195", Start="1795254195", End="1795254200"),
    ]
    (job,) = build_accounting_jobs(sizes)
    assert (job.state, job.exit_code, job.restarts) == ("COMPLETED", 0, 0)
    assert job.started_at == datetime.fromtimestamp(1795254170, UTC)
    assert job.ended_at == datetime.fromtimestamp(1795254200, UTC)
    again = row(Submit="1795254300", Start="1795254310", End="1795254320")
    assert [run.restarts for run in build_accounting_jobs([*sizes, again])] == [0, 1]
    (task,) = build_accounting_jobs([replace(size, array_task="1") for size in sizes])[0].tasks
    assert (task.state, task.restarts) == ("COMPLETED", 0)
    assert build_accounting_jobs(sizes[:2])[0].state == "RESIZING"


def test_an_id_that_was_given_out_twice_is_two_jobs() -> None:
    jobs = build_accounting_jobs(
        [row(Comment="rb1.mine"), row(Comment="other", UID="2002", Submit="1795255000")]
    )
    assert [(job.uid, job.mark, job.restarts) for job in jobs] == [(2001, "rb1.mine", 0), (2002, "other", 0)]


def test_a_het_job_is_remembered_as_its_leader_with_the_worst_end() -> None:
    jobs = build_accounting_jobs(
        [
            row(
                JobID="5+1",
                JobIDRaw="6",
                State="FAILED",
                Comment="",
                SubmitLine="sbatch --comment=rb1.x",
                Partition="gpu",
            ),
            row(
                JobID="5+0",
                JobIDRaw="5",
                State="COMPLETED",
                ExitCode="0:0",
                SubmitLine="sbatch --comment=rb1.x",
                Partition="debug",
            ),
        ]
    )
    (job,) = jobs
    assert (job.job_id, job.state, job.exit_code, job.partition) == ("5", "FAILED", 1, "debug,gpu")


@pytest.mark.parametrize("broken", [{"JobIDRaw": "7.batch"}, {"UID": ""}, {"State": ""}])
def test_a_record_without_id_uid_or_state_is_no_row(broken: dict[str, str]) -> None:
    assert sacct.read_row(FULL | broken) is None
