"""The audit goes on whatever happens to its file."""

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redbox.observability.audit import AuditFile, AuditFileError
from redbox.observability.job_audit import AuditEntry
from redbox.server.run import reload_all

DEED = AuditEntry("uid:2001", "alice", "submit", "kube/physics/default/a", "done")
PAGE = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one page for files."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={PAGE}", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_an_audit_file_that_cannot_be_opened_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AuditFileError, match=r"audit\.log cannot be opened: No such file"):
        _audit(tmp_path / "none" / "audit.log")


def test_a_reopening_that_fails_leaves_the_old_file_open(tmp_path: Path) -> None:
    folder, moved = tmp_path / "log", tmp_path / "moved"
    folder.mkdir()
    audit = _audit(folder / "audit.log")
    folder.rename(moved)

    audit.reopen()
    audit(AuditEntry("uid:2001", "alice", "submit", "kube/physics/default/a", "done"))

    assert '"act": "submit"' in (moved / "audit.log").read_text()


def test_a_full_disk_takes_no_later_line_and_no_reopening(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    audit = _audit(path)
    audit(DEED)
    path.unlink()

    audit.reopen()
    audit(DEED)
    audit.close()

    (line,) = path.read_text().splitlines()
    assert json.loads(line)["act"] == "submit"


def test_a_line_that_was_torn_by_a_full_disk_spoils_no_other(small_disk: Path) -> None:
    audit = _audit(small_disk / "audit.log")
    whole = 0
    while os.statvfs(small_disk).f_bfree or (small_disk / "audit.log").stat().st_size < PAGE:
        audit(DEED)
        whole += 1
    subprocess.run(["mount", "-o", f"remount,size={4 * PAGE}", small_disk], check=True)

    audit(DEED)
    audit.close()

    *lines, torn, last = (small_disk / "audit.log").read_text().splitlines()
    assert len(lines) == whole - 1
    assert all(json.loads(line)["act"] == "submit" for line in [*lines, last])
    assert torn.startswith('{"at"')


def test_what_is_told_after_the_end_is_in_no_other_file(tmp_path: Path) -> None:
    audit = _audit(tmp_path / "audit.log")
    audit.close()
    other = tmp_path / "other"
    with other.open("w"):  # which has the number now that the audit's file had
        audit(DEED)
    audit.close()
    assert other.read_text() == ""


def test_what_cannot_be_read_again_keeps_nothing_else_from_it() -> None:
    taken: list[str] = []

    def fails() -> None:
        raise OSError(28, "no space left")

    reload_all(lambda: taken.append("rules"), fails, lambda: taken.append("certificate"))
    assert taken == ["rules", "certificate"]


def _audit(path: Path) -> AuditFile:
    return AuditFile(path, lambda: datetime.now(UTC))
