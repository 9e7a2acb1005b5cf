"""What the administrator installs is what sudo and sshd accept; what is wrong is said with its cure."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from redbox.agents.install_texts import check_agent_file, render_agent_conf, render_sshd, render_sudoers
from redbox.agents.program_source import agent_source

VISUDO = shutil.which("visudo", path="/usr/sbin:/usr/bin")


def test_the_sudoers_line_allows_one_file_without_arguments_to_one_account_for_one_group() -> None:
    (rule,) = [line for line in render_sudoers().splitlines() if not line.startswith(("#", "Defaults"))]
    assert rule == 'redbox ALL = (%redbox-users) NOPASSWD: /usr/libexec/redbox/agent ""'


@pytest.mark.skipif(VISUDO is None, reason="no visudo here")
def test_sudo_understands_it(tmp_path: Path) -> None:
    (tmp_path / "sudoers").write_text(render_sudoers())
    (tmp_path / "sudoers").chmod(0o440)
    subprocess.run(
        [str(VISUDO), "-c", "-f", tmp_path / "sudoers"], check=True, capture_output=True, timeout=60
    )


def test_sshd_is_to_trust_the_ca_for_members_of_the_group_only() -> None:
    lines = render_sshd(group="hpc").splitlines()
    assert lines.index("Match Group hpc") < lines.index("    TrustedUserCAKeys /etc/redbox/ssh-ca.pub")
    assert lines[-1] == "Match All"


@pytest.mark.parametrize("name", ["a b", "ALL", "x, y", "%g", "", "a\nb"])
def test_names_that_would_mean_more_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        render_sudoers(account=name)


def test_the_agents_settings_are_read_as_they_were_rendered() -> None:
    lines = [
        line
        for line in render_agent_conf(min_uid=2000, path="/a:/b").splitlines()
        if not line.startswith("#")
    ]
    assert lines == ["min_uid = 2000", "path = /a:/b"]


class TestInstalledAgent:
    """The check of the file that sudo starts."""

    def faults(self, path: Path, outside: Path) -> list[str]:
        return [
            fault for fault in check_agent_file(path) if not any(f"{p} may" in fault for p in outside.parents)
        ]

    def install(self, folder: Path) -> Path:
        path = folder / "agent"
        path.write_bytes(agent_source())
        path.chmod(0o755)
        return path

    def test_a_missing_one_is_to_be_installed(self, tmp_path: Path) -> None:
        assert self.faults(tmp_path / "agent", tmp_path) == [
            f"{tmp_path}/agent: No such file or directory: install the agent there"
        ]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file of root's")
    def test_a_right_one_has_no_fault_and_each_fault_is_told(self, tmp_path: Path) -> None:
        path = self.install(tmp_path)
        assert self.faults(path, tmp_path) == []
        path.chmod(0o777)
        assert "may be written by others" in self.faults(path, tmp_path)[0]
        path.chmod(0o700)
        assert "chmod 755" in self.faults(path, tmp_path)[0]
        self.install(tmp_path).write_bytes(agent_source() + b"#\n")
        assert "not the agent of this red-box" in self.faults(path, tmp_path)[0]
        os.chown(tmp_path, 1000, 1000)
        assert f"{tmp_path} may be written" in "\n".join(check_agent_file(path))

    def test_a_link_is_no_agent(self, tmp_path: Path) -> None:
        (tmp_path / "agent").symlink_to("/bin/sh")
        assert "not a regular file" in next(iter(check_agent_file(tmp_path / "agent")))
