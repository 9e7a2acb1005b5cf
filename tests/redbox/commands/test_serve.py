"""`redbox serve`, where it cannot begin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TRY_AGAIN, DO_NOT = 70, 78  # what the unit lets systemd start again for, and what not
STARTS_IN = 65_536


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB for the journal."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={STARTS_IN}", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def serve(folder: Path, journal: Path) -> subprocess.CompletedProcess[str]:
    (folder / "mark.secret").write_text("ab" * 32)
    settings = {
        "name": "hpc1",
        "listen": {"port": 0, "unix_socket": str(folder / "redbox.sock")},
        "agents": {"transport": "self"},
        "callers": {"tokens_file": str(folder / "tokens.json")},
        "jobs": {"journal": str(journal), "mark_secret": str(folder / "mark.secret")},
        "audit": {"file": None},
    }
    (folder / "redbox.yaml").write_text(json.dumps(settings))
    argv = [sys.executable, "-m", "redbox", "serve", "--config", str(folder / "redbox.yaml")]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("left", [0, 8192, 40_000])
def test_a_full_disk_is_one_sentence_and_is_tried_again(tmp_path: Path, small_disk: Path, left: int) -> None:
    (small_disk / "others").write_bytes(bytes(STARTS_IN - left))
    ended = serve(tmp_path, small_disk)
    assert ended.returncode == TRY_AGAIN
    (sentence,) = ended.stderr.splitlines()
    assert str(small_disk) in sentence
    assert "cannot be written" in sentence
    assert "full" in sentence or "No space left" in sentence


def test_a_journal_that_is_not_there_is_one_sentence_and_is_not_tried_again(tmp_path: Path) -> None:
    ended = serve(tmp_path, tmp_path / "none")
    assert ended.returncode == DO_NOT
    (sentence,) = ended.stderr.splitlines()
    assert "make it, 0700" in sentence
