"""`redbox check` from where red-box reaches its login node by ssh, over the real sshd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redbox.settings import RedboxSettings
from redbox.setup.checks.all_checks import findings_of
from redbox.setup.checks.findings import Finding, Level
from redbox.setup.install.layout import Layout
from tests.redbox.agents.login_host import ALICE, BOB, LEGACY, MALLORY, LoginHost
from tests.redbox.setup.factories import cluster
from tests.redbox.setup.fakes import REDBOX, File, LoginNode, settings_text

Check = Callable[..., list[Finding]]


def rule(user: str) -> dict[str, Any]:
    return {"cluster": "prod", "namespaces": [user], "user": user}


@pytest.fixture
def check(login_host: LoginHost) -> Check:
    """Check from a host with none of the accounts; only what is wrong of the login node is returned."""

    def run(*users: str, **ssh: Any) -> list[Finding]:
        given = {
            "host": "127.0.0.1",
            "port": login_host.port,
            "known_hosts": login_host.known_hosts,
            "observer": "alice",
            "accounts": "login_node",
            **({"key_directory": login_host.keys} if "ca_key_file" not in ssh else {}),
            **ssh,
        }
        settings = RedboxSettings.model_validate(
            {
                "name": "hpc1",
                "listen": {"unix_socket": None},
                "callers": {"clusters": [cluster()]},
                "mapping": {"rules": [rule(user) for user in users]},
                "agents": {"transport": "ssh", "ssh": given},
            }
        )
        here = LoginNode(groups={})
        here.accounts = {"redbox": here.accounts["redbox"]}
        here.files |= {
            str(login_host.known_hosts): File(b"key"),
            str(login_host.keys): File(mode=0o700, is_directory=True),
            str(login_host.folder / "ca"): File(b"key", 0o440, of_own_group=True),
        }
        return list(findings_of(here, settings, Layout()))

    return run


def test_it_reports_what_only_the_login_node_shows(check: Check) -> None:
    found = check(ALICE.name, BOB.name)
    assert {finding.what.partition(" ")[0] for finding in found if finding.level is Level.FAULT} == {
        *("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct", "sacctmgr", "srun")
    }, "the test's login host has no Slurm, and nothing else is wrong"
    assert all("/usr/bin:/bin of the login node" in finding.what for finding in found)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        (MALLORY.name, "who is not in the group redbox-users"),
        (LEGACY.name, "whose uid 500 is below min_uid"),
        ("gone", "who does not exist on the login node"),
    ],
)
def test_a_user_of_a_rule_must_be_one_of_the_login_node(check: Check, user: str, words: str) -> None:
    assert any(words in finding.what for finding in check(user))


def test_it_logs_in_as_the_users_since_nothing_else_proves_that_sshd_lets_them(
    check: Check, login_host: LoginHost
) -> None:
    key = login_host.keys / BOB.name
    kept = key.read_bytes()
    key.write_bytes((login_host.keys / MALLORY.name).read_bytes())
    try:
        (found,) = [finding for finding in check(ALICE.name, BOB.name) if "no agent starts" in finding.what]
    finally:
        key.write_bytes(kept)
    assert "on the login node as bob: " in found.what
    assert "sshd's log there" in found.cure


def test_without_a_login_it_says_what_the_login_node_needs(check: Check) -> None:
    found = check(ALICE.name, observer="redbox-watch")
    (fault,) = [finding for finding in found if "no agent starts on 127.0.0.1" in finding.what]
    assert "as redbox-watch" in fault.what
    assert "useradd --create-home --password '*' redbox-watch" in fault.cure
    assert "usermod -aG redbox-users redbox-watch" in fault.cure


def test_clocks_apart_are_reported_where_certificates_live_for_minutes(
    check: Check, login_host: LoginHost
) -> None:
    authority = login_host.folder / "ca"
    authority.chmod(0o600)
    found = check(ALICE.name, ca_key_file=authority, addresses=["127.0.0.1"])
    assert any("the clock of 127.0.0.1 is" in finding.what for finding in found)


def test_secrets_and_settings_of_a_pod_are_as_they_must_be() -> None:
    """Secrets are root's and the pod's group's; a ConfigMap has mode 0777 and is mounted read-only."""
    here = LoginNode()
    here.files["/etc/redbox"] = File(mode=0o777, is_directory=True, is_read_only=True)
    here.files["/etc/redbox/redbox.yaml"] = File(settings_text().encode(), 0o644, is_read_only=True)
    for path in ("/var/lib/redbox/mark.secret", "/etc/redbox/tls/server.key"):
        here.files[path].mode, here.files[path].uid, here.files[path].of_own_group = 0o440, 0, True
    here.uid = REDBOX
    settings = RedboxSettings.model_validate(
        {"name": "hpc1", "callers": {"clusters": [cluster()]}, "mapping": {"rules": [rule("alice")]}}
    )
    faults = [one for one in findings_of(here, settings, Layout()) if one.level is Level.FAULT]
    assert faults == []
    here.files["/var/lib/redbox/mark.secret"].mode = 0o444
    assert any("mark.secret has mode 0444" in one.what for one in findings_of(here, settings, Layout()))
