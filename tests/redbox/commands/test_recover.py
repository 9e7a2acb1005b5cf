"""A lost journal, and the command that brings its jobs back."""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import pwd
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from typer.testing import CliRunner, Result

from redbox.cli import app
from redbox.commands import recover
from redbox.jobs.record.marks import Marks, read_secret
from redbox.jobs.service import JobService
from redbox.jobs.store.journal import Journal
from redbox.settings import load_settings
from redbox_api.log import configure_log
from redbox_api.models import Phase
from tests.redbox.http.fakes import RunningClock
from tests.redbox.http.harness import QUICK
from tests.redbox.jobs.fakes import SimulatedSlurm
from tests.redbox.jobs.harness import caller, request

SECRET = "ab" * 32


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command configures the log of its process, for this test alone."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.setattr(recover, "configure_log", configure_log)
    yield
    structlog.reset_defaults()
    root.handlers[:] = before[0]
    root.setLevel(before[1])


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> SimulatedSlurm:
    slurm = SimulatedSlurm(RunningClock())

    @asynccontextmanager
    async def workload_of(_: Any) -> AsyncIterator[SimulatedSlurm]:
        yield slurm

    monkeypatch.setattr(recover, "workload_of", workload_of)
    return slurm


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    (tmp_path / "journal").mkdir(mode=0o700)
    (tmp_path / "mark.secret").write_text(SECRET)
    (tmp_path / "mark.secret").chmod(0o600)
    jobs = {"journal": str(tmp_path / "journal"), "mark_secret": str(tmp_path / "mark.secret")}
    path = tmp_path / "redbox.yaml"
    path.write_text(yaml.safe_dump({"name": "hpc1", "jobs": jobs}))
    return path


def run(settings: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["recover", "--config", str(settings), "--user", "nobody", *more])


@asynccontextmanager
async def serving(slurm: SimulatedSlurm, settings: Path) -> AsyncIterator[JobService]:
    journal = Journal(settings.parent / "journal")
    marks = Marks(read_secret(settings.parent / "mark.secret"), "hpc1")
    try:
        async with JobService(journal, slurm, marks, settings=QUICK) as jobs:
            yield jobs
    finally:
        journal.close()


async def submit(slurm: SimulatedSlurm, settings: Path, *keys: str) -> None:
    async with serving(slurm, settings) as jobs:
        for key in keys:
            await jobs.put(caller(), key, 1, request())


async def look(slurm: SimulatedSlurm, settings: Path, key: str) -> Phase:
    async with serving(slurm, settings) as jobs:
        return (await jobs.get(caller(), key)).phase


def lose(settings: Path) -> None:
    shutil.rmtree(settings.parent / "journal")
    (settings.parent / "journal").mkdir(mode=0o700)


def test_jobs_come_back_to_their_owners(slurm: SimulatedSlurm, settings: Path) -> None:
    asyncio.run(submit(slurm, settings, "k1", "k2"))
    lose(settings)
    ended = run(settings)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.stdout == f"Wrote 2 jobs to the new journal in {settings.parent}/journal.\n"
    assert asyncio.run(look(slurm, settings, "k2")) is Phase.PENDING


def test_a_forged_mark_is_printed_and_skipped(slurm: SimulatedSlurm, settings: Path) -> None:
    asyncio.run(submit(slurm, settings, "k1"))
    slurm.add_foreign(2002, slurm.jobs["1"].mark)
    lose(settings)
    ended = run(settings)
    assert ended.stdout.startswith("Wrote 1 jobs")
    assert "skipped: job 2 of uid 2002" in ended.stderr


def test_a_journal_that_holds_jobs_is_not_touched(slurm: SimulatedSlurm, settings: Path) -> None:
    asyncio.run(submit(slurm, settings, "k1"))
    ended = run(settings)
    assert ended.exit_code == 1
    assert "Move the old one away first." in ended.stderr


def test_slurm_away_writes_nothing(slurm: SimulatedSlurm, settings: Path) -> None:
    slurm.down = True
    ended = run(settings)
    assert ended.exit_code == 75
    slurm.down = False
    assert run(settings).exit_code == 0


def test_an_unknown_user_is_an_error(settings: Path) -> None:
    ended = run(settings, "--user", "no-such-user")
    assert ended.exit_code == 1
    assert "there is no user 'no-such-user' on this host" in ended.stderr


@pytest.mark.usefixtures("log")
def test_the_log_goes_to_stderr(
    slurm: SimulatedSlurm, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def workload_of(_: Any) -> AsyncIterator[SimulatedSlurm]:
        structlog.get_logger("redbox.agents.pool").warning("an agent could not be started")
        yield slurm

    monkeypatch.setattr(recover, "workload_of", workload_of)
    ended = run(settings)
    assert ended.stdout.startswith("Wrote 0 jobs")
    assert "an agent could not be started" in ended.stderr


def test_all_users_are_those_whose_primary_group_it_is_as_well(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = [
        pwd.struct_passwd((name, "x", 2000, gid, "", "/", "/")) for name, gid in (("ann", 7), ("bob", 8))
    ]
    monkeypatch.setattr("pwd.getpwall", lambda: accounts)
    group = grp.struct_group(("redbox-users", "x", 7, ["carl", "ann"]))
    monkeypatch.setattr("grp.getgrnam", {"redbox-users": group}.__getitem__)
    assert recover._members(load_settings(settings)) == ["carl", "ann"]
    monkeypatch.setattr("grp.getgrnam", lambda _: grp.struct_group(("redbox-users", "x", 8, ["carl"])))
    assert recover._members(load_settings(settings)) == ["carl", "bob"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_account_than_the_servers_is_an_error(settings: Path) -> None:
    os.chown(settings.parent / "journal", 65534, 65534)
    ended = run(settings)
    assert ended.exit_code == 1
    assert "runuser -u nobody -- redbox recover" in ended.stderr
