"""Backups of slurmctld's state, and what is put back of them."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redbox_slurmpod.backup.copies import UnusableBackup, check_backup, make_backup, whole_backups
from redbox_slurmpod.backup.restore import MARGIN, CannotRestore, restore
from redbox_slurmpod.backup.state_folder import UnusableState, next_job_id
from redbox_slurmpod.cli import main

NOW = datetime(2026, 11, 29, 15, 47, 0, tzinfo=UTC)
NAME = "20261129T154700Z"
VERSION = b"PROTOCOL_VERSION\0"
DUMP = "CREATE TABLE x;\n-- Dump completed on 2026-11-29 15:47:00\n"


def job_state(next_id: int) -> bytes:
    return struct.pack(f">I{len(VERSION)}sHQI", len(VERSION), VERSION, 11264, 0, next_id) + b"jobs"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Of a slurmctld that is about to give out the id 47."""
    folder = tmp_path / "state"
    (folder / "hash.7" / "job.7").mkdir(parents=True)
    (folder / "hash.7" / "job.7" / "script").write_text("#!/bin/sh\n")
    (folder / "job_state").write_bytes(job_state(47))
    (folder / "node_state.new").write_bytes(b"half")
    (folder / "clustername").write_text("lab\n")
    return folder


@pytest.fixture
def backups(tmp_path: Path) -> Path:
    folder = tmp_path / "backups"
    folder.mkdir()
    return folder


def backed_up(state: Path, backups: Path, now: datetime = NOW, keep: int = 9) -> Path:
    return make_backup(state, backups, now, keep=keep, with_database=False)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_backup_has_the_state_without_files_that_are_being_written(state: Path, backups: Path) -> None:
    made = backed_up(state, backups)
    assert made == backups / NAME
    assert files(made / "state") == {
        "job_state": job_state(47),
        "clustername": b"lab\n",
        "hash.7/job.7/script": b"#!/bin/sh\n",
    }
    assert json.loads((made / "backup.json").read_text())["nextJobId"] == 47
    assert made.stat().st_mode & 0o777 == 0o750


def test_a_backup_without_a_state_or_with_another_file_in_its_place_fails(state: Path, backups: Path) -> None:
    (state / "job_state").write_bytes(b"\0\0\0\1x")
    with pytest.raises(UnusableState, match="does not begin as Slurm writes it"):
        backed_up(state, backups)
    (state / "job_state").unlink()
    with pytest.raises(UnusableState, match="has not saved a state there yet"):
        backed_up(state, backups)
    assert whole_backups(backups) == []


def test_a_backup_goes_on_after_one_that_failed(state: Path, backups: Path) -> None:
    (backups / "new" / "state").mkdir(parents=True)
    (backups / "new" / "state" / "of_before").write_text("x")
    assert "of_before" not in files(backed_up(state, backups) / "state")


@pytest.mark.parametrize("dump", [None, "", "CREATE TABLE x;\n"])
def test_a_dump_that_is_not_whole_makes_no_backup(state: Path, backups: Path, dump: str | None) -> None:
    (backups / "new").mkdir()
    if dump is not None:
        (backups / "new" / "database.sql").write_text(dump)
    with pytest.raises(UnusableState, match="dump"):
        make_backup(state, backups, NOW, keep=1, with_database=True)
    assert whole_backups(backups) == []


def test_a_whole_dump_belongs_to_the_backup(state: Path, backups: Path) -> None:
    (backups / "new").mkdir()
    (backups / "new" / "database.sql").write_text(DUMP)
    with pytest.raises(UnusableState, match="has not saved assoc_usage yet"):
        make_backup(state, backups, NOW, keep=1, with_database=True)
    (state / "assoc_usage").write_bytes(b"usage")
    made = make_backup(state, backups, NOW, keep=1, with_database=True)
    assert "database.sql" in check_backup(made).digests


def test_only_the_newest_backups_are_kept(state: Path, backups: Path) -> None:
    (backups / "by-hand").mkdir()
    made = [backed_up(state, backups, NOW + timedelta(hours=hour), keep=2) for hour in range(4)]
    assert whole_backups(backups) == made[2:]
    assert (backups / "by-hand").exists()


def test_a_backup_with_a_changed_or_missing_file_is_not_put_back(state: Path, backups: Path) -> None:
    made, claim = backed_up(state, backups), backups / "claim"
    claim.mkdir()
    (made / "state" / "clustername").write_text("other\n")
    with pytest.raises(UnusableBackup, match="clustername is not as it was written"):
        restore(made, claim, 47 + MARGIN)
    (made / "state" / "clustername").unlink()
    with pytest.raises(UnusableBackup, match="not a whole backup"):
        restore(made, claim, 47 + MARGIN)
    with pytest.raises(UnusableBackup, match="not a whole backup"):
        restore(backups / "absent", claim, 47 + MARGIN)
    assert list(claim.iterdir()) == []


def test_a_state_is_put_back_once(state: Path, backups: Path, tmp_path: Path) -> None:
    made, claim = backed_up(state, backups), tmp_path / "claim"
    (claim / "lost+found").mkdir(parents=True)
    claim.chmod(0o777)
    restore(made, claim, 47 + MARGIN)
    assert claim.stat().st_mode & 0o777 == 0o777  # whose owner it is not
    assert files(claim).items() >= files(made / "state").items()
    (claim / "job_state").write_bytes(job_state(200_000))  # slurmctld goes on
    restore(made, claim, 47 + MARGIN)
    assert next_job_id((claim / "job_state").read_bytes()) == 200_000


def test_a_state_that_is_there_is_not_replaced(state: Path, backups: Path) -> None:
    made, before = backed_up(state, backups), files(state)
    with pytest.raises(CannotRestore, match="has a state already"):
        restore(made, state, 47 + MARGIN)
    assert files(state) == before


def test_a_restore_that_ended_half_way_is_begun_again(state: Path, backups: Path, tmp_path: Path) -> None:
    made, claim = backed_up(state, backups), tmp_path / "claim"
    (claim / "hash.1").mkdir(parents=True)
    (claim / "hash.1" / "half").write_text("x")
    (claim / "redbox-restore-begun").touch()
    restore(made, claim, 47 + MARGIN)
    assert files(claim) == {**files(made / "state"), "redbox-restored": b""}


def test_ids_that_may_have_been_given_out_are_not_given_out_again(state: Path, backups: Path) -> None:
    made, claim = backed_up(state, backups), backups / "claim"
    claim.mkdir()
    with pytest.raises(CannotRestore, match=f"firstJobId to {47 + MARGIN} or more"):
        restore(made, claim, 47 + MARGIN - 1)
    assert list(claim.iterdir()) == []


def test_the_commands_of_the_image(state: Path, backups: Path, tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    claim.mkdir()
    assert main(["backup", f"--state={state}", f"--folder={backups}"]) == 0
    (made,) = whole_backups(backups)
    assert main(["restore", f"--state={claim}", f"--first-job-id={47 + MARGIN}", str(made)]) == 0
    assert (claim / "job_state").exists()
    assert main(["restore", f"--state={state}", f"--first-job-id={47 + MARGIN}", str(made)]) == 1
