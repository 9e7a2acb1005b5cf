"""The agent refuses to be what it must not be, by a file that only root can have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redbox.agents.program.guard import AgentSettings, StartRefused, check_user, read_settings

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file of root's")


@pytest.mark.parametrize(
    ("uid", "effective_uid", "reason"),
    [(0, 0, "started as root"), (1000, 0, "differ"), (0, 1000, "differ"), (999, 999, "below min_uid 1000")],
)
def test_root_and_low_uids_are_refused(uid: int, effective_uid: int, reason: str) -> None:
    with pytest.raises(StartRefused, match=reason):
        check_user(uid, effective_uid, AgentSettings({}))


def test_root_is_refused_whatever_min_uid_says() -> None:
    with pytest.raises(StartRefused):
        check_user(0, 0, AgentSettings({"min_uid": "-1"}))


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    settings = read_settings(str(tmp_path / "agent.conf"))
    check_user(1000, 1000, settings)
    assert "/usr/bin" in settings.path


@needs_root
def test_the_file_sets_bound_and_path(tmp_path: Path) -> None:
    file = tmp_path / "agent.conf"
    file.write_text("# a comment\n\nmin_uid = 2000 # and another\npath = /opt/slurm/bin:/usr/bin\n")
    file.chmod(0o644)
    settings = read_settings(str(file))
    assert (settings.min_uid, settings.path) == (2000, ["/opt/slurm/bin", "/usr/bin"])


@needs_root
@pytest.mark.parametrize("fault", ["owner", "group", "others", "directory"])
def test_a_file_that_others_could_have_written_is_refused(tmp_path: Path, fault: str) -> None:
    file = tmp_path / "agent.conf"
    file.write_text("min_uid = 1\n")
    match fault:
        case "owner":
            os.chown(file, 1000, 1000)
        case "group":
            file.chmod(0o664)
        case "others":
            file.chmod(0o646)
        case _:
            tmp_path.chmod(0o777)
    with pytest.raises(StartRefused, match="others than root"):
        read_settings(str(file))


@pytest.mark.parametrize("values", [{"min_uid": "many"}, {"minuid": "1"}])
def test_a_setting_that_is_not_understood_is_refused_and_not_guessed(values: dict[str, str]) -> None:
    with pytest.raises(StartRefused):
        AgentSettings(values)
