"""`redbox check` beside the real sudo, visudo and sshd, in a login host of the tests' own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from redbox.agents.install_texts import check_agent_file
from redbox.agents.settings import AgentsSettings, SshSettings
from redbox.callers.unix_accounts import UnixAccount
from redbox.settings import RedboxSettings
from redbox.setup.checks import agents
from redbox.setup.checks.findings import Finding
from redbox.setup.checks.machine import FilePermissions, Machine, ProcessOutput
from redbox.setup.install.layout import Layout
from tests.redbox.agents.login_host import SERVER, LoginHost

SUDO = RedboxSettings(name="hpc1")


class LoginHostMachine(Machine):
    """That host, seen from here: its files by way of /proc, its commands in its mount namespace."""

    def __init__(self, host: LoginHost) -> None:
        super().__init__()
        self._host = host
        self._root = Path(f"/proc/{host.holder}/root")

    def permissions(self, path: Path) -> FilePermissions | None:
        return super().permissions(self._root / path.relative_to("/"))

    def resolve(self, path: Path) -> Path:
        return path

    def read(self, path: Path) -> bytes | None:
        return super().read(self._root / path.relative_to("/"))

    def run(
        self, argv: Sequence[str], deadline_s: float, environment: Mapping[str, str] | None = None
    ) -> ProcessOutput:
        return super().run(self._host.enter(*argv), deadline_s, environment)

    def agent_problems(self, path: Path) -> list[str]:
        return list(check_agent_file(self._root / path.relative_to("/")))

    def account(self, name: str) -> UnixAccount | None:
        return UnixAccount(name, SERVER.uid, frozenset({SERVER.uid})) if name == SERVER.name else None


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginHost]:
    needed = ("/usr/bin/sudo", "/usr/sbin/visudo", "/usr/sbin/sshd", "/bin/tcsh", "/usr/bin/fish")
    missing = [name for name in needed if not Path(name).exists()]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root (for a mount namespace) and {', '.join(missing) or 'nothing else'}")
    with LoginHost.running(tmp_path_factory.mktemp("checked-login-host")) as running:
        yield running


def shell(host: LoginHost, script: str) -> None:
    subprocess.run(host.enter("/bin/sh", "-ec", script), check=True, timeout=60, stdin=subprocess.DEVNULL)


def findings_about_sudo(host: LoginHost) -> list[Finding]:
    machine, layout = LoginHostMachine(host), Layout()
    return [
        *agents.check_agent_files(machine, SUDO, layout),
        *agents.check_sudoers(machine, SUDO, layout),
    ]


def test_what_redbox_init_prints_has_no_findings(host: LoginHost) -> None:
    assert findings_about_sudo(host) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("redbox ALL = (root) NOPASSWD: /bin/ls", "sudo allows redbox more than red-box needs: (root)"),
        ("redbox ALL = (%redbox-users) NOPASSWD: /usr/libexec/redbox/agent", "more than red-box needs"),
        ("redbox ALL = (", "sudo's rules are not valid: "),
    ],
    ids=["another right", "any arguments", "a flaw"],
)
def test_a_rule_in_another_file_is_found(host: LoginHost, rule: str, words: str) -> None:
    shell(host, f"echo '{rule}' > /etc/sudoers.d/zz; chmod 440 /etc/sudoers.d/zz")
    try:
        assert any(words in finding.what for finding in findings_about_sudo(host))
    finally:
        shell(host, "rm /etc/sudoers.d/zz")


def test_a_file_that_sudo_does_not_read_is_found(host: LoginHost) -> None:
    shell(host, "chmod o+w /etc/sudoers.d")
    try:
        findings = " ".join(finding.what for finding in findings_about_sudo(host))
    finally:
        shell(host, "chmod o-w /etc/sudoers.d")
    assert "users other than root can write /etc/sudoers.d" in findings
    assert "is world writable" in findings


def test_no_right_at_all_is_found(host: LoginHost) -> None:
    shell(host, "mv /etc/sudoers.d/redbox /etc/kept")
    try:
        findings = [finding.what for finding in findings_about_sudo(host)]
    finally:
        shell(host, "mv /etc/kept /etc/sudoers.d/redbox")
    assert findings == ["there is no /etc/sudoers.d/redbox"]


def test_an_agent_that_others_may_write_is_found(host: LoginHost) -> None:
    shell(host, "chmod g+w /usr/libexec/redbox")
    try:
        assert any("may be written by others" in finding.what for finding in findings_about_sudo(host))
    finally:
        shell(host, "chmod g-w /usr/libexec/redbox")


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("", []),
        ("TrustedUserCAKeys /etc/redbox/ssh-ca.pub", ["sshd trusts a CA for user certificates for root too"]),
    ],
    ids=["for the group", "for all"],
)
def test_sshd_trusts_the_ca_for_the_group_and_not_for_root(
    host: LoginHost, added: str, expected: list[str]
) -> None:
    ssh = SshSettings(
        host="login",
        known_hosts=Path("/etc/redbox/known_hosts"),
        ca_key_file=Path("/etc/redbox/ca"),
        addresses=("127.0.0.1",),
    )
    settings = RedboxSettings(name="hpc1", agents=AgentsSettings(transport="ssh", ssh=ssh))
    shell(
        host,
        "echo 'login ssh-ed25519 AAAA' > /etc/redbox/known_hosts;"
        f"{{ echo '{added}'; cat /etc/ssh/test_sshd_config; }} > /etc/ssh/sshd_config",
    )
    found = agents.check_ssh(LoginHostMachine(host), settings)
    assert [finding.what for finding in found] == expected
