"""The trial of a configuration, with daemons that end as a test says; tests/e2e/hosting has Slurm's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from redbox_slurmpod.trial.scratch_cluster import (
    ACCEPTED,
    LONGEST_MESSAGE,
    REFUSED,
    UNDECIDED,
    Folders,
    try_configuration,
)

CONF = (
    "ClusterName=lab\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nLicenses=redbox-config-d1:1\n"
)
RUNS = "exec sleep 60"
SHOWN = """\
Configuration data as of now
ClusterName             = lab
ProctrackType           = proctrack/linuxproc
TaskPlugin              = (null)
Licenses                = redbox-config-d1:1
"""
SCONTROL = """\
case $1 in
ping) echo "Slurmctld(primary) at trial is {ping}" ;;
--oneliner) echo "NodeName=trial Arch=x86_64 State={state} ThreadsPerCore=1" ;;
show) cat {shown} ;;
esac
"""
Try = Callable[..., tuple[int, str]]


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Try:
    """Exit status and message of a trial with these daemons."""
    programs = tmp_path / "bin"
    folders = Folders(*(tmp_path / name for name in ("new", "slurm", "run", "spool", "message")))
    for folder in (programs, folders.new, folders.slurm, folders.run, folders.spool):
        folder.mkdir()
    (folders.new / "slurm.conf").write_text(CONF)
    (folders.new / "prolog").write_text("#!/bin/sh\n")
    shown = tmp_path / "shown"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def run(
        *,
        slurmctld: str = RUNS,
        slurmd: str = RUNS,
        ping: str = "UP",
        state: str = "IDLE",
        config: str = SHOWN,
        within_s: float = 60,
    ) -> tuple[int, str]:
        shown.write_text(config)
        scontrol = SCONTROL.format(ping=ping, state=state, shown=shown)
        for name, text in {"slurmctld": slurmctld, "slurmd": slurmd, "scontrol": scontrol}.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        return try_configuration(folders, within_s), folders.message.read_text()

    return run


def says(*lines: str, status: int = 1) -> str:
    return "; ".join(f"echo '[now] {line}' >&2" for line in lines) + f"; exit {status}"


def test_what_answers_registers_and_is_read_back_is_accepted(tried: Try, tmp_path: Path) -> None:
    assert tried() == (ACCEPTED, "accepted")
    files = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "slurm").iterdir()}
    assert files == {"slurm.conf": 0o555, "prolog": 0o555, "slurm.key": 0o600, "jwt.key": 0o600}


def test_the_words_of_the_daemon_that_ends_are_the_refusal(tried: Try) -> None:
    words = ("error: 1", "error: 2", "error: 3", "fatal: 4", "error: 5")
    refused = "error: 2; error: 3; fatal: 4"
    assert tried(slurmctld=says(*words), ping="DOWN") == (REFUSED, f"slurmctld: {refused}")


def test_slurmctld_takes_what_slurmd_refuses(tried: Try) -> None:
    ended = tried(slurmd=says("error: cannot create proctrack context for proctrack/nosuch"), state="UNKNOWN")
    assert ended == (REFUSED, "slurmd: error: cannot create proctrack context for proctrack/nosuch")


def test_a_crash_of_a_daemon_with_words_is_a_refusal(tried: Try) -> None:
    status, words = tried(slurmd="echo 'error: odd' >&2; kill -SEGV $$", state="UNKNOWN")
    assert (status, words) == (REFUSED, "slurmd: error: odd")


@pytest.mark.parametrize(
    "end",
    [
        "exit 1",
        says("fatal: write: No space left on device"),
        says("fatal: malloc: Cannot allocate memory"),
        "echo 'error: odd' >&2; kill -KILL $$",
    ],
)
def test_what_the_pod_lacks_is_no_refusal(tried: Try, end: str) -> None:
    assert tried(slurmd=end, state="UNKNOWN")[0] == UNDECIDED


@pytest.mark.parametrize(
    ("silent", "what"),
    [({"ping": "DOWN"}, "slurmctld did not answer"), ({"state": "UNKNOWN"}, "slurmd did not register")],
)
def test_daemons_that_say_nothing_are_no_refusal(tried: Try, silent: dict[str, str], what: str) -> None:
    noisy = {"slurmctld": f"echo 'error: slow' >&2; {RUNS}"}
    status, words = tried(**noisy, **silent, within_s=0.3)
    assert status == UNDECIDED
    assert words.startswith(what)
    assert "slurmctld: error: slow" in words


def test_a_scontrol_that_hangs_is_no_refusal(tried: Try, tmp_path: Path) -> None:
    hangs = f"$(touch {tmp_path}/asked; exec sleep 60)"
    assert tried(ping=hangs, within_s=0.3)[0] == UNDECIDED
    assert (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (SHOWN.replace("redbox-config-d1", "redbox-config-d2"), "Licenses=redbox-config-d2:1"),
        (SHOWN.replace("linuxproc", "pgid"), "ProctrackType=proctrack/pgid"),
        ("Other = 1\n", "ClusterName="),
    ],
)
def test_a_value_that_the_operator_relies_on_is_read_back(tried: Try, wrong: str, named: str) -> None:
    status, words = tried(config=wrong)
    assert status == REFUSED
    assert f"slurmctld runs {named}, and the operator relies on" in words


def test_a_configuration_that_is_not_shown_is_no_refusal(tried: Try) -> None:
    assert tried(config="") == (UNDECIDED, "slurmctld did not show its configuration")


def test_without_a_configuration_the_message_says_so(tried: Try, tmp_path: Path) -> None:
    (tmp_path / "new" / "slurm.conf").unlink()
    status, words = tried()
    assert status == UNDECIDED
    assert "slurm.conf" in words


def test_the_message_is_printable_and_bounded(tried: Try) -> None:
    status, words = tried(slurmctld=says("fatal: \x1b[2J" + "é" * 4_000), ping="DOWN")
    assert status == REFUSED
    assert words.isprintable()
    assert len(words.encode()) <= LONGEST_MESSAGE
