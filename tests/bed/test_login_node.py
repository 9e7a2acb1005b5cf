"""How often the login host's programs are copied and compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import cast

import pytest

from redbox_bed import login_node
from redbox_bed.core.places import Places
from redbox_bed.hosts.host import Host


@dataclass
class Login:
    """A host that has files, and the commands that were run on it."""

    files: dict[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    def write(self, path: str, content: str, *, mode: int = 0o644) -> None:
        assert mode
        self.files[path] = content

    def run(self, *command: str, **_: object) -> CompletedProcess[str]:
        self.ran.append(command[0])
        if command[0] == "rm":
            self.files = {path: text for path, text in self.files.items() if not path.startswith(command[-1])}
        return CompletedProcess(
            command, 0, self.files.get(command[-1], "") if command[0] == "cat" else "3.13"
        )


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    folders: list[Path] = []
    monkeypatch.setattr(login_node, "_dependencies", lambda *_: tmp_path / "dependencies")
    monkeypatch.setattr(login_node, "_project", lambda *_: tmp_path / "project")
    monkeypatch.setattr(login_node, "_compile", lambda *_: None)
    monkeypatch.setattr(login_node, "copy", lambda _host, folder, _target, **_: folders.append(folder))
    return folders


def test_what_is_installed_already_stays_until_the_checkout_is_another(
    monkeypatch: pytest.MonkeyPatch, copied: list[Path], tmp_path: Path
) -> None:
    login, places = Login(), Places(tmp_path, tmp_path)
    for version, copies in (("1", 2), ("1", 2), ("2", 4)):
        monkeypatch.setattr(login_node, "version", lambda now=version: now)
        login.files.pop(login_node.PROGRAM, None)
        login_node.install(cast("Host", login), places)
        assert len(copied) == copies
        assert login.files[login_node.PROGRAM] == login_node.LAUNCHER
    assert login.ran.count("python3") == 2  # its version


def test_an_installation_that_was_cut_short_is_made_again(
    monkeypatch: pytest.MonkeyPatch, copied: list[Path], tmp_path: Path
) -> None:
    login, places = Login(), Places(tmp_path, tmp_path)
    login_node.install(cast("Host", login), places)
    with monkeypatch.context() as patch:
        patch.setattr(login_node, "version", lambda: "another")
        patch.setattr(login_node, "copy", _fail)
        with pytest.raises(OSError, match="full"):
            login_node.install(cast("Host", login), places)
    login_node.install(cast("Host", login), places)
    assert len(copied) == 4


def test_modules_are_compiled_by_the_first_bed_for_all(
    monkeypatch: pytest.MonkeyPatch, copied: list[Path], tmp_path: Path
) -> None:
    compiled: list[Path] = []
    monkeypatch.setattr(login_node, "_compile", lambda _host, folder, _target: compiled.append(folder))
    for login in (Login(), Login()):
        login_node.install(cast("Host", login), Places(tmp_path, tmp_path))
    assert compiled == [tmp_path / "dependencies", tmp_path / "project"]
    assert copied == [tmp_path / f"{name}-compiled-3.13" for name in ("dependencies", "project")] * 2


def _fail(*_: object, **__: object) -> None:
    raise OSError("disk full")
