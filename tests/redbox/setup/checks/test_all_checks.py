"""`redbox check`: silent about a good login node, and clear about each thing that is wrong with another."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from pathlib import Path

import pytest

from redbox.callers.tokens.opaque_tokens import TokenStore
from redbox.cli import COMMANDS
from redbox.core.clock import SystemClock
from redbox.core.yaml_document import parse_document, validate
from redbox.server.certificates import issue_server, make_authority
from redbox.settings import RedboxSettings, load_settings
from redbox.setup.checks.all_checks import check_everything, check_token, findings_of
from redbox.setup.checks.findings import Finding, Level, exit_status
from redbox.setup.checks.machine import PORT_IN_USE, Machine, ProcessOutput
from redbox.setup.checks.slurm import TESTED_RELEASES
from redbox.setup.install.layout import Layout
from redbox_bed.core.plan import Release
from tests.redbox.callers.factories import ISSUER, claims, jwks, rsa_key, token
from tests.redbox.setup.factories import (
    cluster,
    configure,
    controllers,
    good_ssh,
)
from tests.redbox.setup.fakes import (
    AUDIENCE,
    NOW,
    REDBOX,
    SUDO_LIST,
    LoginNode,
    settings_text,
)
from tests.redbox.setup.problems import PROBLEMS
from tests.redbox.slurm.captured import RELEASES

NOTE, WARNING, FAULT = Level.NOTE, Level.WARNING, Level.FAULT
NAMED = re.compile(r"\b(?:run|what|as|that|of|from) redbox ([a-z]+)")


def findings_on(host: LoginNode) -> list[Finding]:
    content = host.files["/etc/redbox/redbox.yaml"].content.decode()
    settings = validate(RedboxSettings, parse_document(content, "redbox.yaml"))
    return list(findings_of(host, settings, Layout()))


def test_a_good_login_node_has_no_findings() -> None:
    assert findings_on(LoginNode()) == []


def test_the_releases_that_it_calls_tested_are_those_of_the_captured_outputs_and_of_the_bed() -> None:
    assert TESTED_RELEASES == RELEASES == tuple(Release)


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_problem_is_reported_with_its_cure(case: str) -> None:
    change, level, words = PROBLEMS[case]
    host = LoginNode()
    change(host)
    matching = [finding for finding in findings_on(host) if words in finding.what]
    assert [finding.level for finding in matching][:1] == [level], findings_on(host)
    assert matching[0].cure or level is NOTE


def test_a_cure_names_only_commands_that_there_are() -> None:
    named = set()
    for change, _, _ in PROBLEMS.values():
        host = LoginNode()
        change(host)
        named |= {name for finding in findings_on(host) for name in NAMED.findall(finding.cure)}
    assert {"init", "check", "sudoers", "sshd"} <= named <= COMMANDS.keys()


def test_a_good_node_that_uses_ssh_has_no_findings_either() -> None:
    host = LoginNode()
    good_ssh(host)
    assert findings_on(host) == []


def test_a_right_that_sudo_shows_in_two_lines_is_still_the_one_right() -> None:
    host = LoginNode()
    host.commands["/usr/bin/sudo -n -l -U redbox"] = ProcessOutput(
        0, SUDO_LIST.replace('agent ""', 'agent\n    ""')
    )
    assert findings_on(host) == []


def test_slurm_is_asked_with_the_environment_that_it_needs_here() -> None:
    host = LoginNode()
    configure(slurm={"environment": {"SLURM_CONF": "/opt/slurm/etc/slurm.conf"}})(host)
    assert findings_on(host) == []
    assert host.environment == {"SLURM_CONF": "/opt/slurm/etc/slurm.conf"}


def test_a_federation_that_is_meant_is_no_fault() -> None:
    host = LoginNode()
    PROBLEMS["a federation"][0](host)
    configure(slurm={"allow_federation": True})(host)
    assert findings_on(host) == []


def test_an_operator_that_may_not_requeue_is_noted_with_the_cure() -> None:
    host = LoginNode()
    resourced = controllers("redbox-resourced", roles=("operator", "reader", "volumes"))
    submits = {"cluster": "prod", "namespaces": ["physics"], "user": "alice"}
    configure(mapping={"rules": [controllers("redbox-operator"), resourced, submits]})(host)
    (finding,) = findings_on(host)
    assert "no rule of cluster prod has the roles operator and requeue" in finding.what
    assert "add requeue" in finding.cure


def test_controllers_with_all_their_roles_are_no_finding() -> None:
    host = LoginNode()
    submits = {"cluster": "prod", "namespaces": ["physics"], "user": "alice"}
    operator = controllers("redbox-operator", roles=("operator", "reader", "requeue"))
    resourced = controllers("redbox-resourced", roles=("operator", "reader", "volumes"))
    configure(mapping={"rules": [operator, resourced, submits]})(host)
    assert findings_on(host) == []


def test_everything_is_reported_at_once() -> None:
    host = LoginNode()
    for name in ("no account", "no mark secret", "a full disk", "no limits", "a federation"):
        PROBLEMS[name][0](host)
    assert len(findings_on(host)) >= 5


def test_without_root_only_what_can_be_read_is_checked() -> None:
    host = LoginNode(uid=2001)
    for path in [path for path in host.files if path.startswith("/var/lib/redbox")]:
        del host.files[path]
    assert [finding.what for finding in findings_on(host)] == [
        "secrets, the journal and sudo's rules were not checked"
    ]


def test_a_personal_install_is_not_asked_for_what_it_does_not_need() -> None:
    host = LoginNode(uid=REDBOX)
    configure(agents={"transport": "self"})(host)
    for path in ("/etc/sudoers.d/redbox", "/etc/redbox/agent.conf"):
        del host.files[path]
    host.groups.clear()
    assert findings_on(host) == []


def test_settings_with_an_error_are_reported_by_line(tmp_path: Path) -> None:
    layout = Layout(configuration=tmp_path)
    layout.settings.write_text("name: hpc1\nlisten:\n  prot: 1\n")
    (finding,) = check_everything(LoginNode(), layout)
    assert finding.level is FAULT
    assert "line 3: listen.prot: there is no such key" in finding.what


def test_the_worst_comes_first_and_decides_the_exit_status(tmp_path: Path) -> None:
    layout = Layout(configuration=tmp_path)
    layout.settings.write_text("name: hpc1\n")
    findings = check_everything(LoginNode(files={}), layout)
    assert [finding.level for finding in findings] == sorted(
        (finding.level for finding in findings), reverse=True
    )
    assert exit_status(findings) == 1
    assert exit_status([finding for finding in findings if finding.level is not FAULT]) == 0


def test_this_machine_answers_every_question(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path, tmp_path, tmp_path)
    layout.settings.write_text(settings_text(listen={"port": 18999, "address": "127.0.0.1"}))
    findings = check_everything(Machine(), layout)
    assert any("prod.jwks.json cannot be read" in finding.what for finding in findings)
    assert all(str(finding) for finding in findings)


def test_a_port_of_another_process_is_not_taken_for_that_of_the_red_box_beside_it() -> None:
    """listen.port was changed since red-box was started."""
    (finding,) = findings_on(LoginNode(listening=PORT_IN_USE, running=True))
    assert finding.level is WARNING
    assert "port 8443 is in use, and not with /etc/redbox/tls/server.crt" in finding.what


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.3"])
def test_the_certificate_is_compared_where_red_box_listens(tmp_path: Path, address: str) -> None:
    authority = make_authority("hpc1", NOW)
    ours, other = (issue_server(authority, ["login.example"], [], NOW) for _ in range(2))
    pair = tmp_path / "pair.pem"
    pair.write_bytes(ours.certificate + ours.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    with socket.create_server((address, 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                context.wrap_socket(listener.accept()[0], server_side=True).close()

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        file = b"Certificate:\n    Data:\n" + ours.certificate.replace(b"\n", b"\r\n") + authority.certificate
        assert Machine().serves(address, port, file)
        assert not Machine().serves(address, port, other.certificate)
    assert not Machine().serves(address, port, file)


def test_a_token_can_be_tried(tmp_path: Path) -> None:
    keys, path = tmp_path / "jwks.json", tmp_path / "redbox.yaml"
    keys.write_bytes(jwks(a=rsa_key()))
    path.write_text(settings_text(callers={"clusters": [cluster(jwks_file=str(keys))]}))
    settings, clock = load_settings(path), SystemClock()
    now = clock.now().timestamp()
    good = token(payload=claims(now=now, iss=ISSUER, aud=[AUDIENCE]))
    assert check_token(good, settings, clock).what.startswith(
        "the token is good: system:serviceaccount:physics"
    )
    bad = token(payload=claims(now=now - 7200, iss=ISSUER, aud=[AUDIENCE]))
    assert "the token expired at" in check_token(bad, settings, clock).what


def test_an_opaque_token_can_be_tried(tmp_path: Path) -> None:
    path, clock = tmp_path / "redbox.yaml", SystemClock()
    path.write_text(f"name: hpc1\ncallers: {{tokens_file: {tmp_path}/tokens.json}}\n")
    store, settings = TokenStore(tmp_path / "tokens.json", clock), load_settings(path)
    made = store.create("alice", 60)
    assert check_token(made.secret, settings, clock).what == f"the token is good: token:{made.record.id}"
    store.revoke(made.record.id)
    revoked = check_token(made.secret, settings, clock)
    assert (revoked.level, "was revoked" in revoked.what) == (FAULT, True)
    assert "redbox token create" in revoked.cure
