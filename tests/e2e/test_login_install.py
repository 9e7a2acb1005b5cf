"""red-box on a login node as its administrator installs it: one pip install, one `redbox init`, one unit."""

from __future__ import annotations

import configparser
import json
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import deliver
from redbox_bed.host import Daemon, Host
from redbox_bed.progress import Progress

pytestmark = pytest.mark.timeout(400)
VENV = "/opt/redbox-by-pip"
UNIT = "/etc/systemd/system/redbox.service"
MADE = (
    "/etc/sysusers.d/redbox.conf",
    "/etc/tmpfiles.d/redbox.conf",
    "/etc/logrotate.d/redbox",
    UNIT,
    "/etc/sudoers.d/redbox",
    "/usr/libexec/redbox/agent",
    "/usr/local/bin/redbox",
)
KEPT = ("/etc/redbox/redbox.yaml", "/var/lib/redbox/mark.secret", "/var/log/redbox")
WITHIN_S = 90
BEFORE = "/tmp/redbox-before.tar"
ACCOUNTS = ("etc/passwd", "etc/group", "etc/shadow", "etc/gshadow")
HELD = ("--directory=/", *ACCOUNTS, "etc/redbox", "var/lib/redbox")


@dataclass(frozen=True)
class Login:
    """The login host, by its administrator's hands."""

    host: Host

    def pip_install(self, *options: str) -> None:
        """`pip install 'red-box[server]'`, from a folder in place of a registry."""
        self.host.run("python3", "-m", "venv", "--without-pip", VENV)
        pip = self.host.run("sh", "-c", "echo /tmp/wheels/pip-*.whl").stdout.strip()
        self.host.run(
            *(f"{VENV}/bin/python", f"{pip}/pip", "install", "--quiet", "--no-index", "--no-compile"),
            *("--find-links=/tmp/wheels", *options, "red-box[server]"),
            timeout=200,
        )

    def init(self) -> str:
        address = self.host.spec.address
        options = ("--name", "hpc1", "--cluster", "bed", "--host", address)
        return self.host.run(f"{VENV}/bin/redbox", "init", *options).stdout

    def start_as_the_unit_does(self) -> None:
        """systemd is not there: its account, its command, and the folders that it would make."""
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(self.host.read(UNIT).decode())
        service = unit["Service"]
        account = service["User"]
        for base, key in (("/run", "Runtime"), ("/var/lib", "State"), ("/var/log", "Logs")):
            folder = f"{base}/{service[f'{key}Directory']}"
            mode = service[f"{key}DirectoryMode"]
            self.host.run("install", "-d", "-o", account, "-g", service["Group"], "-m", mode, folder)
        self.host.ensure(Daemon(login_node.SERVICE, tuple(shlex.split(service["ExecStart"])), user=account))
        eventually(lambda: self.as_alice("whoami") != "")

    def as_alice(self, *words: str) -> str:
        ended = self.host.run("redbox", *words, user="alice", check=False)
        return ended.stdout if ended.returncode == 0 else ""

    def there(self, *paths: str) -> list[str]:
        return [path for path in paths if self.host.run("test", "-e", path, check=False).returncode == 0]


@pytest.fixture(scope="module")
def login(bed: Bed) -> Iterator[Login]:
    """A login host without red-box, and with the wheels that a registry would have."""
    host = bed.host("login")
    if host.running(login_node.SERVICE):
        host.kill(login_node.SERVICE)
    host.run("tar", "--create", f"--file={BEFORE}", *HELD)
    host.run("rm", "-rf", login_node.PROGRAM, login_node.LIBRARY, "/etc/redbox")
    host.run("find", "/var/lib/redbox", "-mindepth", "1", "-delete")
    login_node.copy(host, login_node.wheels(bed.places, login_node.python_of(host)), "/tmp/wheels")
    yield Login(host)
    if host.running(login_node.SERVICE):
        host.kill(login_node.SERVICE)
    host.run(f"{VENV}/bin/redbox", "uninstall", "--purge", check=False)
    host.run("rm", "-rf", VENV, "/tmp/wheels")
    # The accounts first: what the files are is theirs by number.
    host.run("tar", "--extract", "--directory=/", f"--file={BEFORE}", *ACCOUNTS)
    host.run("tar", "--extract", "--directory=/", f"--file={BEFORE}")
    deliver(bed, Progress.silent())


def eventually(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not look():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.3)


def test_pip_init_and_the_unit_make_a_red_box_that_runs_jobs(login: Login) -> None:
    login.pip_install()
    manifest = login.init()
    assert "kind: SlurmCluster" in manifest
    assert login.there(*MADE) == list(MADE)
    assert login.host.run("id", "redbox").returncode == 0
    login.host.run("visudo", "--check", "--quiet")
    login.host.run("usermod", "-aG", "redbox-users", "alice")
    login.host.run("systemd-analyze", "verify", UNIT)
    login.start_as_the_unit_does()
    assert "alice" in login.as_alice("whoami")


def test_an_upgrade_keeps_the_journal_and_the_job_that_runs(login: Login) -> None:
    submitted = login.host.run(
        *("curl", "--silent", "--fail", "--unix-socket", "/run/redbox/redbox.sock"),
        *("--request", "PUT", "--header", "Content-Type: application/json"),
        *("--data", json.dumps({"batch": "#!/bin/sh\nsleep 25\necho through\n"})),
        "http://localhost/v1/jobs/upgrade",
        user="alice",
    ).stdout
    before = json.loads(submitted)
    secret = login.host.read("/var/lib/redbox/mark.secret")
    login.pip_install("--force-reinstall", "--no-deps")
    login.init()
    login.host.kill(login_node.SERVICE)
    login.start_as_the_unit_does()
    assert login.host.read("/var/lib/redbox/mark.secret") == secret
    eventually(lambda: "Succeeded" in login.as_alice("jobs", "upgrade"))
    assert "through" in login.as_alice("logs", "upgrade")
    assert str(before.get("id") or before.get("jobID") or "") in login.as_alice("jobs", "upgrade")


def test_what_the_administrator_wrote_in_its_place_is_left_alone(login: Login) -> None:
    own = "# our own\n/var/log/redbox/audit.log { monthly }\n"
    login.host.write("/etc/logrotate.d/redbox", own)
    login.init()
    assert login.host.read("/etc/logrotate.d/redbox").decode() == own
    login.host.run("rm", "/etc/logrotate.d/redbox")
    login.init()


def test_it_is_not_taken_away_while_it_runs(login: Login) -> None:
    ended = login.host.run("redbox", "uninstall", check=False)
    assert ended.returncode == 1
    assert "stop it first" in ended.stderr
    assert login.there(*MADE) == list(MADE)


def test_uninstall_removes_what_init_made_and_says_what_it_kept(login: Login) -> None:
    login.host.kill(login_node.SERVICE)
    said = login.host.run("redbox", "uninstall").stderr
    assert login.there(*MADE) == []
    assert login.there(*KEPT) == list(KEPT)
    assert "kept /var/lib/redbox" in said
    login.host.run("visudo", "--check", "--quiet")
    login.host.run(f"{VENV}/bin/redbox", "uninstall", "--purge")
    assert login.there(*KEPT, "/etc/redbox") == []
    assert login.host.run("id", "redbox", check=False).returncode != 0
