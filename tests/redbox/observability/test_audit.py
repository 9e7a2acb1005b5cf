"""The audit goes on whatever happens to its file."""

import errno
import json
import os
import subprocess
import sys
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
        make_audit(tmp_path / "none" / "audit.log")


def test_a_reopening_that_fails_leaves_the_old_file_open(tmp_path: Path) -> None:
    folder, moved = tmp_path / "log", tmp_path / "moved"
    folder.mkdir()
    audit = make_audit(folder / "audit.log")
    folder.rename(moved)

    audit.reopen()
    audit(AuditEntry("uid:2001", "alice", "submit", "kube/physics/default/a", "done"))

    assert '"act": "submit"' in (moved / "audit.log").read_text()


def test_a_full_disk_takes_no_later_line_and_no_reopening(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    audit = make_audit(path)
    audit(DEED)
    path.unlink()

    audit.reopen()
    audit(DEED)
    audit.close()

    (line,) = path.read_text().splitlines()
    assert json.loads(line)["act"] == "submit"


def test_a_full_disk_leaves_whole_lines_alone(small_disk: Path) -> None:
    path, lost = small_disk / "audit.log", list[bool]()
    audit = AuditFile(path, lambda: datetime.now(UTC), lambda: lost.append(True))
    written = 0
    while not lost:
        audit(DEED)
        written += not lost
    assert path.read_bytes().endswith(b"\n")
    subprocess.run(["mount", "-o", f"remount,size={4 * PAGE}", small_disk], check=True)

    audit(DEED)
    audit.close()

    lines = path.read_text().splitlines()
    assert len(lines) == written + 1
    assert all(json.loads(line)["act"] == "submit" for line in lines)


def test_a_file_of_limited_size_has_whole_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    program = (
        "import resource, sys\n"
        "from tests.redbox.observability.test_audit import DEED, make_audit\n"
        "audit = make_audit(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "[audit(DEED) for _ in range(8)]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "audit(DEED)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True)
    lines = path.read_text().splitlines()
    assert 1 < len(lines) < 9
    assert all(json.loads(line)["act"] == "submit" for line in lines)


def test_where_a_torn_line_cannot_be_removed_the_next_one_begins_anew(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a file that may only grow (chattr +a), or that another program appends to."""

    def refused(descriptor: int, length: int) -> None:
        del descriptor, length
        raise PermissionError(errno.EPERM, "append-only")

    monkeypatch.setattr(os, "ftruncate", refused)
    path, lost = small_disk / "audit.log", list[bool]()
    audit = AuditFile(path, lambda: datetime.now(UTC), lambda: lost.append(True))
    while not lost:
        audit(DEED)
    subprocess.run(["mount", "-o", f"remount,size={4 * PAGE}", small_disk], check=True)
    audit(DEED)
    audit.close()
    *lines, torn, last = path.read_text().splitlines()
    assert all(json.loads(line)["act"] == "submit" for line in [*lines, last])
    assert torn.startswith('{"at"')


def test_a_restart_after_a_torn_line_begins_on_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"at": "2026-')
    make_audit(path)(DEED)
    torn, line = path.read_text().splitlines()
    assert torn == '{"at": "2026-'
    assert json.loads(line)["act"] == "submit"


def test_a_restart_after_a_whole_line_adds_no_empty_one(tmp_path: Path) -> None:
    for _ in range(2):
        make_audit(tmp_path / "audit.log")(DEED)
    assert len((tmp_path / "audit.log").read_text().splitlines()) == 2


def test_what_is_told_after_the_end_is_in_no_other_file(tmp_path: Path) -> None:
    audit = make_audit(tmp_path / "audit.log")
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


def make_audit(path: Path) -> AuditFile:
    return AuditFile(Path(path), lambda: datetime.now(UTC))
