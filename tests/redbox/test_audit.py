"""The audit goes on whatever happens to its file."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from redbox.audit import AuditFile, AuditUnusable
from redbox.jobs.audit import Deed


def test_an_audit_file_that_cannot_be_opened_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AuditUnusable, match=r"audit\.log cannot be opened: No such file"):
        _audit(tmp_path / "none" / "audit.log")


def test_a_reopening_that_fails_leaves_the_old_file_open(tmp_path: Path) -> None:
    folder, moved = tmp_path / "log", tmp_path / "moved"
    folder.mkdir()
    audit = _audit(folder / "audit.log")
    folder.rename(moved)

    audit.reopen()
    audit(Deed("uid:2001", "alice", "submit", "kube/physics/default/a", "done"))

    assert '"act": "submit"' in (moved / "audit.log").read_text()


def _audit(path: Path) -> AuditFile:
    return AuditFile(path, lambda: datetime.now(UTC))
