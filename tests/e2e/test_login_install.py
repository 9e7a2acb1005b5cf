"""red-box on a login node as its administrator installs it: one pip install, one `redbox init`, one unit."""

from __future__ import annotations

import configparser
import json
import platform
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
from tests.deploy.debian_programs import unpacked

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
AUDIT = "/var/log/redbox/audit.log"
EXPOSURE = 90  # of 100, as systemd counts: what sudo and the users' files need leaves no less
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

    def submit(self, key: str, script: str) -> dict[str, str]:
        """Alice's job, by the socket."""
        answer = self.host.run(
            *("curl", "--silent", "--fail", "--unix-socket", "/run/redbox/redbox.sock"),
            *("--request", "PUT", "--header", "Content-Type: application/json"),
            *("--data", json.dumps({"batch": f"#!/bin/sh\n{script}\n"}), f"http://localhost/v1/jobs/{key}"),
            user="alice",
        )
        taken: dict[str, str] = json.loads(answer.stdout)
        return taken

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
    host.run("rm", "-rf", VENV, "/tmp/wheels", "/tmp/logrotate", "/tmp/root")
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
    login.start_as_the_unit_does()
    assert "alice" in login.as_alice("whoami")


def test_systemds_own_programs_take_its_files_and_do_what_they_say(login: Login) -> None:
    run = login.host.run
    assert run("systemd-analyze", "verify", UNIT).stderr == ""
    run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", UNIT)
    run("sh", "-c", "rm -rf /tmp/root && mkdir -p /tmp/root/etc && cp -r /etc/*.d /tmp/root/etc/")
    run("systemd-sysusers", "--root=/tmp/root", "/etc/sysusers.d/redbox.conf")
    made = run("sh", "-c", "cut -d: -f1,6,7 /tmp/root/etc/passwd; cut -d: -f1 /tmp/root/etc/group").stdout
    assert {"redbox:/var/lib/redbox:/usr/sbin/nologin", "redbox", "redbox-users"} <= set(made.splitlines())
    run("systemd-tmpfiles", "--create", "--root=/tmp/root", "/etc/tmpfiles.d/redbox.conf")
    folders = run(
        "sh", "-c", "cd /tmp/root && stat -c '%a %n' run/redbox var/lib/redbox var/log/redbox"
    ).stdout
    assert folders.splitlines() == ["755 run/redbox", "700 var/lib/redbox", "750 var/log/redbox"]


def test_after_a_rotation_the_audit_goes_on_in_the_new_file(login: Login) -> None:
    """By logrotate itself; what it has systemd do is done by a stand-in of that name."""
    login_node.copy(login.host, unpacked("logrotate", "libpopt0"), "/tmp/logrotate")
    service = f"$(cut -d ' ' -f 1 /run/bed/{login_node.SERVICE}.pid)"
    hangup = f'#!/bin/sh\necho "$@" >/tmp/asked\nkill -HUP {service}\n'
    login.host.write("/tmp/logrotate/bin/systemctl", hangup, mode=0o755)
    login.submit("before", "true")
    path = "PATH=/tmp/logrotate/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    libraries = f"LD_LIBRARY_PATH=/tmp/logrotate/usr/lib/{platform.machine()}-linux-gnu"
    rotate = ("env", path, libraries, "/tmp/logrotate/usr/sbin/logrotate", "--state=/tmp/rotated")
    login.host.run(*rotate, "--force", "/etc/logrotate.d/redbox")
    asked = login.host.read("/tmp/asked").decode()
    assert asked == "kill --kill-whom=main --signal=HUP redbox.service\n"

    def written_anew() -> bool:
        login.submit(f"after-{time.monotonic_ns()}", "true")
        return b"after-" in login.host.read(AUDIT)

    eventually(written_anew)
    assert b"/before/" in login.host.read(f"{AUDIT}.1")
    assert b"/before/" not in login.host.read(AUDIT)
    assert login.host.run("stat", "-c", "%U %a", AUDIT).stdout == "redbox 640\n"


def test_an_upgrade_keeps_the_journal_and_the_job_that_runs(login: Login) -> None:
    before = login.submit("upgrade", "sleep 25; echo through")
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
