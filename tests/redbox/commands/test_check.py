"""What `redbox check` prints and ends with; what it finds is tested with `setup`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from redbox.cli import app
from redbox.commands import check
from redbox.setup.checks.findings import Finding, fault, note, warning
from tests.redbox.callers.factories import claims, token
from tests.redbox.http.harness import standing

FOUND = [
    fault("port 8443 is in use", "stop what listens there\nor choose another"),
    warning("Slurm keeps no accounting", "turn it on"),
    note("no rule lets a service account submit"),
]


def run_with(monkeypatch: pytest.MonkeyPatch, found: list[Finding], *options: str) -> Result:
    monkeypatch.setattr(check, "check_everything", lambda *_: found)
    return CliRunner().invoke(app, ["check", *options])


def test_each_finding_comes_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run_with(monkeypatch, FOUND)
    assert ended.exit_code == 1
    assert ended.stdout == (
        "fault: port 8443 is in use\n    stop what listens there\n    or choose another\n"
        "warning: Slurm keeps no accounting\n    turn it on\n"
        "note: no rule lets a service account submit\n"
    )
    assert ended.stderr == "1 fault, 1 warning, 1 note\n"


def test_without_a_fault_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run_with(monkeypatch, FOUND[1:])
    assert (ended.exit_code, ended.stderr) == (0, "0 faults, 1 warning, 1 note\n")


def test_programs_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run_with(monkeypatch, FOUND, "-o", "json")
    assert ended.exit_code == 1
    assert json.loads(ended.stdout)[2] == {
        "level": "note",
        "what": "no rule lets a service account submit",
        "cure": "",
    }


async def test_a_tokens_fate_is_told_before_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with standing() as stand:
        home = tmp_path / "home"
        (home / ".config/redbox").mkdir(parents=True)
        (home / ".config/redbox/redbox.yaml").write_text(stand.settings.read_text())
        monkeypatch.setenv("HOME", os.fspath(home))
        (tmp_path / "token").write_text(token(payload=claims(aud=["https://kubernetes"])))
        ended = await asyncio.to_thread(
            CliRunner().invoke, app, ["check", "--personal", "--token-file", os.fspath(tmp_path / "token")]
        )
    assert ended.exit_code == 1
    assert "the token is refused: the token is for ['https://kubernetes']" in ended.stdout


async def test_the_log_is_not_on_stdout_which_programs_read(tmp_path: Path) -> None:
    async with standing() as stand:
        (tmp_path / ".config/redbox").mkdir(parents=True)
        (tmp_path / ".config/redbox/redbox.yaml").write_text(stand.settings.read_text())
        (tmp_path / "token").write_text(token(payload=claims(aud=["https://kubernetes"])))
        argv = [sys.executable, "-m", "redbox", "check", "--personal", "-o", "json"]
        ended = await asyncio.to_thread(
            subprocess.run,
            [*argv, "--token-file", os.fspath(tmp_path / "token")],
            check=False,
            capture_output=True,
            env={**os.environ, "HOME": os.fspath(tmp_path)},
        )
    assert [finding["level"] for finding in json.loads(ended.stdout)] == ["fault"]
    assert b"keys read" in ended.stderr
