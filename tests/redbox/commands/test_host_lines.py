"""`redbox sudoers` and `redbox sshd`, and the hosts that `redbox init` is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from redbox.cli import app

SAID = {"sudoers": "redbox ALL = (%{}) NOPASSWD: ", "sshd": "Match Group {}\n    TrustedUserCAKeys "}
UNUSABLE = 78


def printed(command: str, settings: Path) -> Result:
    return CliRunner().invoke(app, [command], env={"REDBOX_CONFIG": str(settings)})


@pytest.mark.parametrize("group", ["hpc", "hpc@example.org", "4hpc"])
@pytest.mark.parametrize("command", SAID)
def test_they_are_for_the_group_of_the_settings(tmp_path: Path, command: str, group: str) -> None:
    settings = tmp_path / "redbox.yaml"
    settings.write_text(f"name: hpc1\nmapping: {{users_group: {group}}}\n")
    assert SAID[command].format(group) in printed(command, settings).stdout


@pytest.mark.parametrize("command", SAID)
def test_before_there_are_settings_they_are_for_the_group_that_init_makes(
    tmp_path: Path, command: str
) -> None:
    assert SAID[command].format("redbox-users") in printed(command, tmp_path / "redbox.yaml").stdout


@pytest.mark.parametrize("command", SAID)
def test_settings_with_a_flaw_are_told_and_nothing_is_guessed(tmp_path: Path, command: str) -> None:
    settings = tmp_path / "redbox.yaml"
    settings.write_text("name: hpc1\nmapping: {users_grup: hpc}\n")
    ended = printed(command, settings)
    assert (ended.exit_code, ended.stdout) == (UNUSABLE, "")
    assert "users_grup: there is no such key" in ended.stderr


NEITHER = "is neither a name nor an IP address"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("host", "999.1.1.1", NEITHER),
        ("host", "1.2.3", NEITHER),
        ("host", "login:8443", NEITHER),
        ("host", "", "is not a name in ASCII"),
        ("host", "bücher.example", "is not a name in ASCII"),
        ("host", "login..example", "is not a host's name"),
        ("host", "login.example.", "is not a host's name"),
        ("host", "login.example/", "is not a host's name"),
        ("host", "login example", "is not a host's name"),
        ("name", "HPC1", "redbox.yaml (not written) line 4: name: "),
        ("cluster", "local", "a cluster may not be named local"),
        ("port", "99999", "listen.port: "),
        ("namespace", "Red_Box", "'Red_Box' is not a valid name of a namespace"),
    ],
)
def test_an_option_that_cannot_be_is_told_and_nothing_is_written(
    tmp_path: Path, option: str, value: str, words: str
) -> None:
    options = {"name": "hpc1", "cluster": "c1", "transport": "self", "host": "login", option: value}
    argv = ["init", *(part for name, given in options.items() for part in (f"--{name}", given))]
    folders = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    ended = CliRunner().invoke(app, argv, env=folders)
    assert ended.exit_code == 1
    assert ended.stderr.startswith("redbox: ")
    assert words in ended.stderr
    assert ended.stdout == ""
    assert list(tmp_path.iterdir()) == []
