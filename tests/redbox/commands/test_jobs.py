"""Listing, showing and cancelling jobs."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import yaml
from typer.testing import CliRunner

from redbox.cli import app
from tests.redbox.commands.conftest import Run
from tests.redbox.http.harness import Stand


async def test_jobs_are_listed_in_columns(stand: Stand, redbox: Run) -> None:
    await stand.submitted("first", name="one")
    job_id, _ = await stand.writing("second")
    ended = await redbox("jobs")
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ended.exit_code == 0
    assert lines[0][:5] == ["KEY", "ATTEMPT", "PHASE", "STATE", "JOBID"]
    assert lines[1][:3] == ["first", "1", "Pending"]
    assert lines[2][:5] == ["second", "1", "Running", "RUNNING", job_id]


async def test_no_jobs_are_a_heading(redbox: Run) -> None:
    assert (await redbox("jobs")).stdout.split()[:2] == ["KEY", "ATTEMPT"]


async def test_a_list_can_be_read_by_programs(stand: Stand, redbox: Run) -> None:
    job_id = await stand.submitted("k1")
    as_json = json.loads((await redbox("jobs", "-o", "json")).stdout)
    as_yaml = yaml.safe_load((await redbox("jobs", "--output", "yaml")).stdout)
    assert [job["key"] for job in as_json] == ["k1"]
    assert [job["jobID"] for job in as_yaml] == [job_id]


async def test_a_list_is_limited_to_phases(stand: Stand, redbox: Run) -> None:
    await stand.submitted("waits")
    await stand.writing("runs")
    shown = json.loads((await redbox("jobs", "--phase", "Running", "--phase", "Failed", "-o", "json")).stdout)
    assert [job["key"] for job in shown] == ["runs"]


async def test_a_long_cell_is_whole_in_a_pipe(stand: Stand, redbox: Run) -> None:
    await stand.submitted("k1", name="n" * 120)
    job_id = (await stand.until("k1", lambda job: job.get("state")))["jobID"]
    stand.slurm.put(replace(stand.slurm.jobs[job_id], reason="R" * 200))
    await stand.until("k1", lambda job: job.get("reason") == "R" * 200)
    shown = (await redbox("jobs")).stdout
    assert "n" * 120 in shown
    assert "R" * 200 in shown


async def test_a_jobs_name_writes_on_nobodys_terminal(stand: Stand, redbox: Run) -> None:
    job_id = await stand.submitted("k1")
    evil = "[red]\x1b[2J\x07\nk2  1  Running"
    stand.slurm.put(replace(stand.slurm.jobs[job_id], name=evil))
    await stand.until("k1", lambda job: job.get("name") == evil)
    shown = (await redbox("jobs")).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[red]?[2J? k2  1  Running" in shown
    assert len(shown.splitlines()) == 2


async def test_a_job_that_succeeded_shows_its_exit_code(stand: Stand, redbox: Run) -> None:
    job_id, _ = await stand.writing("k1")
    stand.slurm.end(job_id)
    await stand.until("k1", lambda job: job["phase"] == "Succeeded")
    assert ["exitCode", "0"] in [line.split() for line in (await redbox("jobs", "k1")).stdout.splitlines()]


async def test_one_job_is_shown_whole(stand: Stand, redbox: Run) -> None:
    await stand.writing("k1")
    lines = dict(line.split(maxsplit=1) for line in (await redbox("jobs", "k1")).stdout.splitlines())
    assert (lines["key"], lines["phase"], lines["owner.account"]) == ("k1", "Running", "alice")
    assert lines["logs.stdout"].startswith(str(stand.home))


async def test_a_job_that_is_not_there_is_one_sentence_and_a_status(redbox: Run) -> None:
    ended = await redbox("jobs", "k1")
    assert ended.exit_code == 1
    assert ended.stderr == "redbox: There is no such job, or it is not yours.\n"
    assert ended.stdout == ""


async def test_a_cancelled_job_ends(stand: Stand, redbox: Run) -> None:
    job_id = await stand.submitted("k1")
    ended = await redbox("cancel", "k1")
    assert ended.exit_code == 0
    assert ended.stdout == f"k1 attempt 1: job {job_id} is being cancelled (Pending)\n"
    await stand.until("k1", lambda job: job["phase"] == "Cancelled")


async def test_a_cancel_of_nothing_says_what_it_means(redbox: Run) -> None:
    ended = await redbox("cancel", "k1", "--all-attempts")
    assert ended.exit_code == 1
    assert "Should it be submitted later, it is refused." in ended.stderr


async def test_slurm_away_is_a_status_of_its_own(stand: Stand, redbox: Run) -> None:
    stand.slurm.down = True
    ended = await redbox("partitions")
    assert ended.exit_code == 75
    assert "try again in" in ended.stderr


def test_a_missing_socket_is_an_error(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["jobs", "--socket", str(tmp_path / "none")])
    assert ended.exit_code == 69
    assert ended.stderr == (
        f"redbox: there is no socket {tmp_path}/none: "
        "start red-box on this host, or give its socket with --socket\n"
    )


def test_a_socket_of_a_dead_server_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    ended = CliRunner().invoke(app, ["jobs", "--socket", str(path)])
    assert ended.exit_code == 69
    assert f"red-box at {path} does not answer" in ended.stderr


def test_each_command_completes_and_explains_itself() -> None:
    for command in ("jobs", "logs", "cancel", "whoami", "partitions", "check", "token create", "token list"):
        ended = CliRunner().invoke(app, [*command.split(), "--help"])
        assert ended.exit_code == 0
        assert len(ended.stdout.splitlines()) > 5
