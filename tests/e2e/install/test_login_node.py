"""red-box on a login node as its administrator installs it: a lock, a wheel, one `redbox init`, one unit.

systemd runs the unit here, sudo starts the agents under it, and logrotate rotates: no part has a stand-in.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.deploy.debian_programs import unpacked
from tests.e2e.harness.login_install import AGENT, MADE, SERVICE, UNIT, without_red_box
from tests.e2e.harness.systemd_host import SystemdHost, booted
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(200)
VENV = "/opt/redbox-by-pip"
LOCK = "/tmp/wheels/server.lock"
SETTINGS = "/etc/redbox/redbox.yaml"
KEPT = (SETTINGS, "/var/lib/redbox/mark.secret", "/var/log/redbox")
AUDIT = "/var/log/redbox/audit.log"
EXPOSURE = 73  # of 100, as systemd counts: what sudo and the users' files need leaves no less
WITHIN_S = 90
READ = "rules read"
REACHING = {"SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_PTRACE": 19, "SYS_ADMIN": 21, "MKNOD": 27, "BPF": 39}


@dataclass(frozen=True)
class Login:
    """The login host, by its administrator's hands."""

    machine: SystemdHost

    @property
    def host(self) -> Host:
        return self.machine.host

    def pip_install(self, *options: str) -> None:
        """What is locked, then the wheel, from a folder in place of a registry."""
        self.host.run("python3", "-m", "venv", "--without-pip", VENV)
        files = self.host.run("sh", "-c", "echo /tmp/wheels/pip-*.whl /tmp/wheels/red_box-*.whl")
        pip, wheel = files.stdout.split()
        install = (f"{VENV}/bin/python", f"{pip}/pip", "install", "--quiet", "--no-index", "--no-compile")
        found = ("--find-links=/tmp/wheels", "--only-binary=:all:")
        for what in ((*found, "--require-hashes", f"--requirement={LOCK}"), ("--no-deps", *options, wheel)):
            self.host.run(*install, *what, timeout=200)

    def init(self) -> str:
        address = self.host.spec.address
        options = ("--name", "hpc1", "--cluster", "bed", "--host", address)
        return self.machine.run(f"{VENV}/bin/redbox", "init", *options).stdout

    def systemctl(self, *words: str) -> None:
        self.machine.run("systemctl", *words, timeout=WITHIN_S)

    @property
    def main(self) -> str:
        """The server's pid, as systemd counts."""
        return self.machine.property(SERVICE, "MainPID")

    def as_alice(self, *words: str) -> str:
        ended = self.machine.run("redbox", *words, user="alice", check=False)
        return ended.stdout if ended.returncode == 0 else ""

    def put(self, key: str, script: str) -> tuple[str, ...]:
        """The command that submits alice's job, by the socket."""
        return (
            *("curl", "--silent", "--fail", "--unix-socket", "/run/redbox/redbox.sock"),
            *("--request", "PUT", "--header", "Content-Type: application/json"),
            *("--data", json.dumps({"batch": f"#!/bin/sh\n{script}\n"}), f"http://localhost/v1/jobs/{key}"),
        )

    def submit(self, key: str, script: str) -> dict[str, str]:
        taken: dict[str, str] = json.loads(self.machine.run(*self.put(key, script), user="alice").stdout)
        return taken

    def agents(self) -> list[str]:
        """The pids of alice's processes in the unit's control group."""
        return self.machine.run("pgrep", "--uid", "alice", "--full", AGENT, check=False).stdout.split()

    def status(self, pid: str) -> dict[str, str]:
        """Of /proc/PID/status."""
        lines = self.machine.run("cat", f"/proc/{pid}/status").stdout.splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def there(self, *paths: str) -> list[str]:
        return [path for path in paths if self.host.run("test", "-e", path, check=False).returncode == 0]


@pytest.fixture(scope="module")
def login(bed: Bed) -> Iterator[Login]:
    """A login host without red-box, run by systemd, and with the wheels that a registry would have."""
    with without_red_box(bed) as host, booted(bed, host.name) as machine:
        login_node.copy(host, login_node.wheels(bed.places, login_node.python_of(host)), "/tmp/wheels")
        host.write(LOCK, login_node.LOCK.read_bytes())
        machine.run("systemctl", "start", "munge")
        yield Login(machine)
        machine.run("systemctl", "disable", "--now", SERVICE, check=False)
        machine.run(f"{VENV}/bin/redbox", "uninstall", "--purge", check=False)
        host.run("rm", "-rf", VENV, "/tmp/wheels", "/tmp/logrotate", "/tmp/root")


def test_pip_init_and_systemd_make_a_red_box_that_runs_jobs(login: Login) -> None:
    login.pip_install()
    manifest = login.init()
    assert "kind: SlurmCluster" in manifest
    assert login.there(*MADE) == list(MADE)
    assert login.host.run("id", "redbox").returncode == 0
    login.host.run("visudo", "--check", "--quiet")
    login.host.run("usermod", "-aG", "redbox-users", "alice")
    login.systemctl("enable", "--now", "redbox")
    assert "alice" in login.as_alice("whoami")  # at once: `start` ends when callers are served
    assert login.machine.property(SERVICE, "UnitFileState") == "enabled"


def test_agents_run_with_what_the_unit_leaves_them(login: Login) -> None:
    login.as_alice("whoami")
    server, agent = login.status(login.main), login.status(login.agents()[0])
    for process in (server, agent):
        assert process["CapEff"] == process["CapPrm"] == "0" * 16
        bounds = int(process["CapBnd"], 16)
        assert [name for name, number in REACHING.items() if bounds >> number & 1] == []
    assert server["NoNewPrivs"] == "0"  # else there is no sudo
    assert login.machine.property(SERVICE, "DevicePolicy") == "closed"
    assert login.machine.property(SERVICE, "OOMPolicy") == "continue"


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


def test_systemd_starts_one_that_was_killed_and_it_knows_its_jobs(login: Login) -> None:
    login.submit("killed", "sleep 60")
    killed = login.main
    login.machine.run("kill", "-9", killed)
    eventually(lambda: login.main not in {killed, "0"} and "killed" in login.as_alice("jobs", "killed"))
    assert login.machine.property(SERVICE, "NRestarts") == "1"
    login.as_alice("cancel", "killed")


def test_reload_has_the_same_process_read_its_rules_anew(login: Login) -> None:
    before, said = login.main, login.machine.said(SERVICE).count(READ)
    login.systemctl("reload", "redbox")
    eventually(lambda: login.machine.said(SERVICE).count(READ) > said)
    assert login.main == before


def test_settings_that_are_wrong_fail_the_start_and_are_not_tried_again(login: Login) -> None:
    good = login.host.read(SETTINGS)
    login.host.write(SETTINGS, good + b"nonsense: 1\n")
    refused = login.machine.run("systemctl", "restart", "redbox", check=False)
    assert refused.returncode == 1
    assert login.machine.property(SERVICE, "ActiveState") == "failed"
    assert "nonsense: there is no such key" in login.machine.said(SERVICE)
    login.host.write(SETTINGS, good)
    login.systemctl("start", "redbox")
    assert "alice" in login.as_alice("whoami")


def test_a_restart_leaves_what_is_on_its_way_alone(login: Login) -> None:
    """As an sbatch would be, in the unit's control group."""
    group = login.machine.property(SERVICE, "ControlGroup")
    login.machine.run(
        "sh", "-c", f"echo 0 >/sys/fs/cgroup{group}/cgroup.procs; setsid -f sleep 4321 >&- 2>&-"
    )
    before = login.main
    login.systemctl("restart", "redbox")
    assert login.main != before
    left = login.machine.run("pgrep", "--full", "sleep 4321").stdout.split()  # fails where there is none
    login.machine.run("kill", *left)


def test_after_a_rotation_the_audit_goes_on_in_the_new_file(login: Login) -> None:
    login_node.copy(login.host, unpacked("logrotate", "libpopt0"), "/tmp/logrotate")
    login.submit("before", "true")
    libraries = f"LD_LIBRARY_PATH=/tmp/logrotate/usr/lib/{platform.machine()}-linux-gnu"
    rotate = ("env", libraries, "/tmp/logrotate/usr/sbin/logrotate", "--state=/tmp/rotated", "--force")
    login.machine.run(*rotate, "/etc/logrotate.d/redbox")

    def written_anew() -> bool:
        login.submit(f"after-{time.monotonic_ns()}", "true")
        return b"after-" in login.host.read(AUDIT)

    eventually(written_anew)
    assert b"/before/" in login.host.read(f"{AUDIT}.1")
    assert b"/before/" not in login.host.read(AUDIT)
    assert login.host.run("stat", "-c", "%U %a", AUDIT).stdout == "redbox 640\n"


def test_an_upgrade_keeps_the_journal_and_the_job_that_runs(login: Login) -> None:
    before = login.submit("upgrade", "sleep 15; echo through")
    secret = login.host.read("/var/lib/redbox/mark.secret")
    login.pip_install("--force-reinstall")
    login.init()
    login.systemctl("restart", "redbox")
    assert login.host.read("/var/lib/redbox/mark.secret") == secret
    eventually(lambda: "Succeeded" in login.as_alice("jobs", "upgrade"))
    assert "through" in login.as_alice("logs", "upgrade")
    assert before["jobID"] in login.as_alice("jobs", "upgrade")


def test_what_the_administrator_wrote_in_its_place_is_left_alone(login: Login) -> None:
    own = "# our own\n/var/log/redbox/audit.log { monthly }\n"
    login.host.write("/etc/logrotate.d/redbox", own)
    login.init()
    assert login.host.read("/etc/logrotate.d/redbox").decode() == own
    login.host.run("rm", "/etc/logrotate.d/redbox")
    login.init()


def test_it_is_not_taken_away_while_it_runs(login: Login) -> None:
    ended = login.machine.run("redbox", "uninstall", check=False)
    assert ended.returncode == 1
    assert "stop it first" in ended.stderr
    assert login.there(*MADE) == list(MADE)


def test_uninstall_removes_what_init_made_and_says_what_it_kept(login: Login) -> None:
    login.systemctl("disable", "--now", "redbox")
    said = login.machine.run("redbox", "uninstall").stderr
    assert login.there(*MADE) == []
    assert login.there(*KEPT) == list(KEPT)
    assert "kept /var/lib/redbox" in said
    assert login.machine.property(SERVICE, "LoadState") == "not-found"
    login.host.run("visudo", "--check", "--quiet")
    login.machine.run(f"{VENV}/bin/redbox", "uninstall", "--purge")
    assert login.there(*KEPT, "/etc/redbox") == []
    assert login.host.run("id", "redbox", check=False).returncode != 0
