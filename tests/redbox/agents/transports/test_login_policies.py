"""What sites ask for at a login: one-time passwords, new passwords, banners, host CAs, no logins today.

Where a login without a person is not possible, one sentence says what the site would have to allow.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh
import pytest

from redbox.agents.errors import AgentError, AgentRefused, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.ssh_login import SshHost
from tests.redbox.agents.login_host import ALICE, ERIN, LoginHost
from tests.redbox.agents.sshd import LOOPBACK, failure, key_of_alice, sshd, whoami

NO_PAUSE = PoolSettings(first_backoff_s=0.0, longest_backoff_s=0.0)
PAM = "UsePAM yes\nKbdInteractiveAuthentication yes"
SERVICE = """\
auth required pam_unix.so
account required pam_nologin.so
account required pam_unix.so
password required pam_unix.so
session required pam_permit.so
"""


@pytest.fixture(scope="module")
def pam_host(login_host: LoginHost) -> LoginHost:
    """With a PAM stack that asks for a password at a prompt, as those of one-time passwords do."""
    write(login_host, "/etc/pam.d/sshd", SERVICE)
    return login_host


def write(host: LoginHost, path: str, content: str) -> None:
    subprocess.run(host.enter("tee", path), input=content.encode(), check=True, stdout=subprocess.DEVNULL)


def run(host: LoginHost, *argv: str) -> None:
    subprocess.run(host.enter(*argv), check=True)


@contextmanager
def file_there(host: LoginHost, path: str, content: str) -> Iterator[None]:
    write(host, path, content)
    try:
        yield
    finally:
        run(host, "rm", path)


async def test_a_one_time_password_is_named_with_what_the_site_would_have_to_allow(
    pam_host: LoginHost, tmp_path: Path
) -> None:
    lines = f"{PAM}\nAuthenticationMethods publickey,keyboard-interactive"
    with sshd(pam_host, tmp_path / "a", lines) as node:
        refused = await failure(node.transport())
        assert "Failed" not in node.log
    assert isinstance(refused, AgentRefused)
    assert "accepted the key and asks for a second factor" in refused.detail
    assert "`AuthenticationMethods publickey` for this account" in refused.detail


async def test_a_prompt_in_place_of_keys_is_named(pam_host: LoginHost, tmp_path: Path) -> None:
    with sshd(pam_host, tmp_path / "a", f"{PAM}\nPubkeyAuthentication no") as node:
        refused = await failure(node.transport())
        assert "Failed" not in node.log
    assert isinstance(refused, AgentRefused)
    assert "takes no public keys here, only a second factor or a password at a prompt" in refused.detail
    assert "PubkeyAuthentication" in refused.detail


async def test_a_second_factor_of_the_jump_host_is_told_from_one_of_the_login_node(
    pam_host: LoginHost, tmp_path: Path
) -> None:
    lines = f"{PAM}\nAuthenticationMethods publickey,keyboard-interactive"
    with sshd(pam_host, tmp_path / "j", lines) as jump, sshd(pam_host, tmp_path / "a") as node:
        refused = await failure(node.transport(jump=SshHost(LOOPBACK, jump.known_hosts, jump.port)))
        assert "Accepted" not in node.log
    assert f"refuses alice@127.0.0.1:{jump.port}: it accepted the key and asks for" in refused.detail


async def test_a_password_that_has_to_be_changed_first_is_named(pam_host: LoginHost, tmp_path: Path) -> None:
    run(pam_host, "chage", "--lastday", "0", "alice")
    try:
        with sshd(pam_host, tmp_path / "a", PAM) as node:
            away = await failure(node.transport())
            run(pam_host, "chage", "--lastday", "19000", "alice")
            assert await whoami(node.transport()) == "alice"
    finally:
        run(pam_host, "chage", "--lastday", "19000", "alice")
    assert isinstance(away, AgentUnavailable)
    assert "Your password has expired" in away.detail


async def test_a_site_that_lets_nobody_in_is_quoted_and_no_more_logins_fail_than_allowed(
    pam_host: LoginHost, tmp_path: Path
) -> None:
    """As in a maintenance: PAM has sshd end each login after its key, which fail2ban counts."""
    with sshd(pam_host, tmp_path / "a", PAM) as node:
        async with AgentPool(node.transport(), NO_PAUSE) as pool:
            with file_there(pam_host, "/etc/nologin", "Maintenance until Thursday.\n"):
                refused = [await error_of(pool) for _ in range(6)]
                assert node.log.count("Failed publickey for alice") == 2
            assert not any(isinstance(one, AgentRefused) for one in refused), "jobs wait for its end"
            assert "Maintenance until Thursday." in refused[0].detail
            assert "nologin" in refused[0].detail
            assert "fail2ban" in refused[-1].detail
            assert "Maintenance until Thursday." in refused[-1].detail
        assert await whoami(node.transport()) == "alice"


async def error_of(pool: AgentPool) -> AgentError:
    with pytest.raises((AgentRefused, AgentUnavailable)) as raised:
        await pool.agent(ALICE)
    error: AgentError = raised.value
    return error


async def test_an_sshd_without_pam_that_lets_nobody_in_is_quoted(
    login_host: LoginHost, tmp_path: Path
) -> None:
    with (
        sshd(login_host, tmp_path / "a") as node,
        file_there(login_host, "/etc/nologin", "Maintenance until Thursday.\n"),
    ):
        away = await failure(node.transport())
    assert isinstance(away, AgentUnavailable)
    assert "Maintenance until Thursday." in away.detail


async def test_a_wrong_key_that_sshd_answers_by_ending_the_connection_counts_as_a_failed_login(
    login_host: LoginHost, tmp_path: Path
) -> None:
    keys = key_of_alice(tmp_path / "keys", asyncssh.generate_private_key("ssh-ed25519"))
    with sshd(login_host, tmp_path / "a", "MaxAuthTries 1") as node:
        async with AgentPool(node.transport(keys=keys), NO_PAUSE) as pool:
            errors = [await error_of(pool) for _ in range(4)]
        assert node.log.count("Connection from") - 1 == 2  # the first one waited for the port
    assert "MaxAuthTries" in errors[0].detail
    assert "fail2ban" in errors[-1].detail


async def test_a_banner_and_a_bashrc_that_prints_do_no_harm(login_host: LoginHost, tmp_path: Path) -> None:
    (tmp_path / "banner").write_text("Authorized use only.\n" * 200)
    with sshd(login_host, tmp_path / "a", f"Banner {tmp_path}/banner\nPrintMotd yes") as node:
        assert await whoami(node.transport(), ERIN) == "erin"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("read -r answer", "has read the input that is for the agent"),
        ("exit 0", "start files must neither end it nor wait for input"),
        ("exec /usr/bin/tee /dev/null", "start files must neither end it nor wait for input"),
    ],
)
async def test_a_bashrc_that_keeps_the_agent_from_starting_is_named(
    login_host: LoginHost, tmp_path: Path, line: str, words: str
) -> None:
    path = "/home/erin/.bashrc"
    run(login_host, "cp", path, f"{path}.saved")
    write(login_host, path, f"echo 'Quota: 93 %'\n{line}\n")
    try:
        with sshd(login_host, tmp_path / "a") as node:
            away = await failure(node.transport(), ERIN, PoolSettings(start_s=5.0))
    finally:
        run(login_host, "mv", f"{path}.saved", path)
    assert words in away.detail
    assert "Traceback" not in away.detail


async def test_an_account_without_sessions_is_named(login_host: LoginHost, tmp_path: Path) -> None:
    with sshd(login_host, tmp_path / "a", "MaxSessions 0") as node:
        away = await failure(node.transport())
    assert "sshd must allow this account a session (MaxSessions)" in away.detail


async def test_a_ca_of_host_keys_serves_all_hosts_of_a_name_and_a_revoked_key_is_refused(
    login_host: LoginHost, tmp_path: Path
) -> None:
    authority, key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    certificate = authority.generate_host_certificate(key, "login", principals=["127.0.0.1"])
    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_bytes(key.export_private_key())
    (tmp_path / "key-cert.pub").write_bytes(certificate.export_certificate())
    lines = f"HostKey {tmp_path}/key\nHostCertificate {tmp_path}/key-cert.pub"
    public = authority.export_public_key().decode()
    with sshd(login_host, tmp_path / "a", lines) as node:
        node.known_hosts.write_text(f"@cert-authority * {public}")
        assert await whoami(node.transport()) == "alice"
        node.known_hosts.write_text(f"@revoked * {public}")
        assert "host key" in (await failure(node.transport())).detail
