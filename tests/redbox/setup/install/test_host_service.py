"""The files of the host that `redbox init` makes: what its tools say of them, and whose are left alone."""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from redbox.cli import app
from redbox.commands import setup
from redbox.setup.install import host_service
from redbox.setup.install.apply import InstallError
from redbox.setup.install.host_service import host_files, is_written_by_init, write_host_file
from redbox.setup.install.layout import Layout
from redbox.setup.install.plan import NewFile

FILES = {file.path.name: file for file in host_files(Path("/opt/redbox/bin/redbox"))}


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"needs {tool}")


def test_every_file_is_known_again_as_ours() -> None:
    assert len(host_files(Path("/x"))) == 5
    for file in host_files(Path("/x")):
        assert is_written_by_init(file.content.decode()), file.path


@pytest.mark.parametrize("written", ["", "# ours\nredbox ALL=(ALL) ALL\n", "[Unit]\nDescription=mine\n"])
def test_a_file_of_the_administrators_is_not_ours(written: str) -> None:
    assert not is_written_by_init(written)


def test_a_package_is_removed_by_its_manager_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not host_service.is_packaged(tmp_path)
    (tmp_path / host_service.PACKAGED).touch()
    assert host_service.is_packaged(tmp_path)
    monkeypatch.setattr(host_service, "is_packaged", lambda: True)
    with pytest.raises(InstallError, match="apt-get purge red-box removes it"):
        list(host_service.remove_from_host(Layout(tmp_path), purge=True))
    assert tmp_path.exists()


def test_another_installation_leaves_agent_and_service_to_the_package(tmp_path: Path) -> None:
    host_service.refuse_beside_package(tmp_path)
    (tmp_path / host_service.PACKAGED).touch()
    with pytest.raises(InstallError, match="use /usr/bin/redbox, or remove the package first"):
        host_service.refuse_beside_package(tmp_path)


def test_the_unit_starts_the_program_that_was_installed() -> None:
    assert "ExecStart=/opt/redbox/bin/redbox serve\n" in FILES["redbox.service"].content.decode()


def test_sudoers_can_be_read_by_root_alone() -> None:
    (sudoers,) = [file for file in host_files(Path("/x")) if file.path.parent.name == "sudoers.d"]
    assert sudoers.mode == 0o440


class Commands:
    """Stands in for the host's commands: these succeed, all others fail."""

    def __init__(self, *succeeding: tuple[str, ...]) -> None:
        self._succeeding = succeeding

    def __call__(self, *command: str, may_fail: bool = False) -> bool:
        assert may_fail or command == ("systemctl", "daemon-reload")
        return command in self._succeeding


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A host below tmp_path, which systemd does not run."""
    monkeypatch.setattr(host_service, "refuse_beside_package", lambda: None)
    monkeypatch.setattr(host_service, "host_files", partial(host_files, root=tmp_path))
    monkeypatch.setattr(host_service, "PROGRAM", tmp_path / "bin/redbox")
    monkeypatch.setattr(host_service, "SYSTEMD", tmp_path / "systemd")
    monkeypatch.setattr(host_service, "_run", Commands())
    layout = Layout(*(tmp_path / name for name in ("etc/redbox", "state", "run", "log", "libexec/agent")))
    layout.agent.parent.mkdir()
    return layout


def test_a_purge_says_what_it_could_not_remove(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "etc/logrotate.d/redbox"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"# f\xfcr unser Haus\n")
    primary = ("getent", "group", "redbox-users")  # somebody's primary group: groupdel fails
    monkeypatch.setattr(host_service, "_run", Commands(primary))
    notes = list(host_service.remove_from_host(layout, purge=True))
    assert "removed the account redbox" in notes
    assert "kept the group redbox-users: groupdel redbox-users does not remove it" in notes
    assert theirs.exists()


def test_a_purge_follows_the_link_of_a_folder_that_was_moved(tmp_path: Path, layout: Layout) -> None:
    moved = tmp_path / "data"
    (moved / "inner").mkdir(parents=True)
    (moved / "journal.sqlite").touch()
    layout.state.symlink_to(moved)
    layout.log.mkdir()
    notes = list(host_service.remove_from_host(layout, purge=True))
    assert f"removed {layout.state}, and emptied {moved}, where it led to" in notes
    assert not layout.state.is_symlink()
    assert list(moved.iterdir()) == []
    assert f"removed {layout.log}" in notes
    assert "removed the account redbox" in notes


def test_an_uninstall_that_fails_has_said_what_it_did(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> str:
        if folder == layout.state:
            raise OSError(16, "Device or resource busy", str(folder))
        return f"removed {folder}"

    layout.state.mkdir()
    monkeypatch.setattr(host_service, "_remove", fail)
    monkeypatch.setattr(setup, "Layout", lambda: layout)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    ended = CliRunner().invoke(app, ["uninstall", "--purge"])
    assert ended.exit_code == 1
    assert f"removed {layout.agent.parent}\n" in ended.stderr
    assert "Device or resource busy" in ended.stderr


def test_a_service_without_the_usual_socket_is_not_removed_while_it_runs(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`unix_socket: null` is for hosts without users."""
    host_service.SYSTEMD.touch()
    layout.state.mkdir()
    active = ("systemctl", "is-active", "--quiet", "redbox.service")
    monkeypatch.setattr(host_service, "_run", Commands(active))
    with pytest.raises(InstallError, match="red-box is running: stop it first"):
        list(host_service.remove_from_host(layout, purge=True))
    assert layout.state.exists()


@pytest.mark.usefixtures("layout")
def test_init_says_that_the_program_in_path_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an upgrade into another folder: `redbox check` would run the release of before."""
    for program in ("old/redbox", "new/redbox", "bin/redbox"):
        (tmp_path / program).parent.mkdir()
        if program != "bin/redbox":
            (tmp_path / program).touch()
    monkeypatch.setattr(host_service, "_program", lambda: tmp_path / "new/redbox")
    monkeypatch.setattr(host_service, "write_host_file", lambda _: None)
    monkeypatch.setattr(host_service, "_make_accounts", lambda _: None)
    in_path = host_service.PROGRAM
    in_path.symlink_to(tmp_path / "old/redbox")
    notes = host_service.install_on_host("redbox-users")
    assert f"kept {in_path}: it is not {tmp_path}/new/redbox, which the service runs" in notes
    (tmp_path / "old/redbox").unlink()
    assert f"linked {in_path} to {tmp_path}/new/redbox" in host_service.install_on_host("redbox-users")
    assert not [note for note in host_service.install_on_host("redbox-users") if str(in_path) in note]


@pytest.mark.usefixtures("layout")
def test_a_path_that_cannot_be_written_ends_init_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_service, "write_host_file", lambda _: None)
    monkeypatch.setattr(host_service, "_make_accounts", lambda _: None)
    with pytest.raises(InstallError, match=f"{tmp_path}/bin/redbox cannot be written: No such file"):
        host_service.install_on_host("redbox-users")


def test_init_keeps_the_group_of_the_settings_in_the_sudo_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each init writes the rule again: with another group red-box could start no agent any more."""
    written: list[NewFile] = []
    monkeypatch.setattr(setup, "Layout", lambda: Layout(tmp_path, tmp_path / "state", log=tmp_path / "log"))
    monkeypatch.setattr(setup, "write_plan", lambda *_: None)
    monkeypatch.setattr(setup, "refuse_beside_package", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(host_service, "PROGRAM", tmp_path)
    monkeypatch.setattr(host_service, "write_host_file", written.append)
    monkeypatch.setattr(host_service, "_make_accounts", lambda _: None)
    monkeypatch.setattr(host_service, "_run", lambda *_: True)
    monkeypatch.setattr(host_service, "is_written_by_init", lambda _: True)
    (tmp_path / "redbox.yaml").write_text("name: hpc1\nmapping: {users_group: hpc}\n")
    ended = CliRunner().invoke(app, ["init", "--name", "hpc1", "--cluster", "prod", "--host", "login"])
    assert ended.exit_code == 0, ended.output
    (rule,) = [file.content.decode() for file in written if file.path.parent.name == "sudoers.d"]
    assert "redbox ALL = (%hpc) NOPASSWD: " in rule
    assert "usermod -aG hpc USER" in ended.stderr


@needs("visudo")
def test_a_rule_that_sudo_cannot_read_is_never_put_in_place(tmp_path: Path) -> None:
    target = tmp_path / "sudoers.d" / "redbox"
    with pytest.raises(InstallError, match="visudo"):
        write_host_file(NewFile(target, b"redbox ALL = (NOT A RULE\n", 0o440, "root"))
    assert list(target.parent.iterdir()) == []


@needs("systemd-sysusers")
def test_sysusers_makes_the_account_and_the_group(tmp_path: Path) -> None:
    configuration = tmp_path / "redbox.conf"
    configuration.write_bytes(host_files(Path("/x"))[0].content)
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", str(configuration)], check=True, timeout=60)
    assert "redbox:" in (tmp_path / "etc/passwd").read_text()
    groups = (tmp_path / "etc/group").read_text()
    assert "redbox:" in groups
    assert "redbox-users:" in groups
