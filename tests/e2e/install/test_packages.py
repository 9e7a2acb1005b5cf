"""red-box as a tarball, then as a Debian package in its place: installed, upgraded, removed and purged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.login_install import AGENT, MADE, SERVICE, UNIT, without_red_box
from tests.e2e.harness.systemd_host import SystemdHost, booted
from tests.e2e.harness.waiting import eventually
from tests.release.release_files import release_files

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]  # the release is built first, once for each change
FOLDER = "/tmp/packages"
TARBALL_PLACE = "/opt/redbox-tarball"
LOGROTATE, SUDOERS, SETTINGS = "/etc/logrotate.d/redbox", "/etc/sudoers.d/redbox", "/etc/redbox/redbox.yaml"
SECRET = "/var/lib/redbox/mark.secret"
WITHIN_S = 90


@dataclass(frozen=True)
class Login:
    """The login host, by its administrator's hands."""

    machine: SystemdHost

    @property
    def host(self) -> Host:
        return self.machine.host

    def dpkg(self, *words: str) -> str:
        ended = self.machine.run("dpkg", *words, check=False, timeout=WITHIN_S)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def init(self, program: str) -> str:
        options = ("--name", "hpc1", "--cluster", "bed", "--host", self.host.spec.address)
        return self.machine.run(program, "init", *options).stderr

    def start(self) -> None:
        self.host.run("usermod", "-aG", "redbox-users", "alice")
        self.machine.run("systemctl", "enable", "--now", "redbox", timeout=WITHIN_S)

    def as_alice(self, *words: str) -> str:
        ended = self.machine.run("redbox", *words, user="alice", check=False)
        return ended.stdout if ended.returncode == 0 else ""

    def submit(self, key: str, script: str) -> None:
        body = json.dumps({"batch": f"#!/bin/sh\n{script}\n"})
        put = ("curl", "--silent", "--fail", "--unix-socket", "/run/redbox/redbox.sock", "--request", "PUT")
        rest = (
            "--header",
            "Content-Type: application/json",
            "--data",
            body,
            f"http://localhost/v1/jobs/{key}",
        )
        self.machine.run(*put, *rest, user="alice")

    def unit(self, name: str) -> str:
        return self.machine.property(SERVICE, name)

    def there(self, *paths: str) -> list[str]:
        return [path for path in paths if self.host.run("test", "-e", path, check=False).returncode == 0]


@pytest.fixture(scope="module")
def login(bed: Bed) -> Iterator[Login]:
    """A login host without red-box, run by systemd, with the files of the release."""
    files = release_files()
    with without_red_box(bed) as host, booted(bed, host.name) as machine:
        host.run("mkdir", "--parents", FOLDER)
        for pattern in ("*.deb", "*-login-node-*.tar.gz"):
            (file,) = files.glob(pattern)
            _copy(host, file, f"{FOLDER}/{'red-box.deb' if file.suffix == '.deb' else 'red-box.tar.gz'}")
        machine.run("systemctl", "start", "munge")
        yield Login(machine)
        machine.run("systemctl", "disable", "--now", SERVICE, check=False)
        machine.run("dpkg", "--purge", "--force-all", "red-box", check=False)
        host.run("rm", "-rf", FOLDER, TARBALL_PLACE)


def _copy(host: Host, file: Path, target: str) -> None:
    with (
        file.open("rb") as content,
        host.popen("tee", target, stdin=content, stdout=subprocess.DEVNULL) as copy,
    ):
        assert copy.wait(WITHIN_S) == 0


def test_the_tarball_is_installed_by_its_script_with_the_hosts_python(login: Login) -> None:
    run = login.machine.run
    run(
        "sh",
        "-ec",
        f"cd {FOLDER} && mkdir unpacked && tar xzf red-box.tar.gz --strip-components=1 -C unpacked",
    )
    refused = run(f"{FOLDER}/unpacked/install", "/etc", check=False)
    assert (refused.returncode, "is no installation of red-box" in refused.stderr) == (1, True)
    install = (f"{FOLDER}/unpacked/install", TARBALL_PLACE)
    run(*install, timeout=WITHIN_S)
    said = run(install[0], f"{TARBALL_PLACE}/", timeout=WITHIN_S).stdout  # it replaces the first one
    assert f"{TARBALL_PLACE}/bin/redbox init" in said
    login.init(f"{TARBALL_PLACE}/bin/redbox")
    assert login.there(*MADE) == list(MADE)
    login.start()
    assert "alice" in login.as_alice("whoami")


def test_the_package_takes_over_from_it_with_the_journal_and_the_job(login: Login) -> None:
    login.submit("over", "sleep 8; echo through")
    secret = login.host.read(SECRET)
    login.dpkg("--install", f"{FOLDER}/red-box.deb")
    assert login.unit("FragmentPath") == "/usr/lib/systemd/system/redbox.service"
    assert login.unit("UnitFileState") == "enabled"
    assert login.there(UNIT, "/etc/sysusers.d/redbox.conf", "/usr/local/bin/redbox") == []
    assert login.machine.run("readlink", "-f", f"/proc/{login.unit('MainPID')}/cwd").returncode == 0
    assert "/usr/lib/redbox/" in login.machine.run("cat", f"/proc/{login.unit('MainPID')}/cmdline").stdout
    assert login.host.read(SECRET) == secret
    eventually(lambda: "Succeeded" in login.as_alice("jobs", "over"))
    assert "through" in login.as_alice("logs", "over")
    login.host.run("visudo", "--check", "--quiet")


def test_init_leaves_to_the_package_what_is_its_own(login: Login) -> None:
    agent = login.host.read(AGENT)
    said = login.init("redbox")
    assert "belong to the package red-box" in said
    assert login.there(UNIT) == []
    assert login.host.read(AGENT) == agent
    refused = login.machine.run("redbox", "uninstall", check=False)
    assert (refused.returncode, "apt-get remove red-box" in refused.stderr) == (1, True)


@pytest.mark.parametrize("words", [("init", "--name=hpc1", "--cluster=bed", "--no-service"), ("uninstall",)])
def test_another_installation_takes_nothing_from_the_package(login: Login, words: tuple[str, ...]) -> None:
    refused = login.machine.run(f"{TARBALL_PLACE}/bin/redbox", *words, check=False)
    assert (refused.returncode, "use /usr/bin/redbox" in refused.stderr) == (1, True)
    assert login.there(AGENT, SUDOERS, UNIT) == [AGENT, SUDOERS]


def test_an_upgrade_keeps_the_job_the_settings_and_what_the_administrator_changed(login: Login) -> None:
    repack = "dpkg-deb -R red-box.deb next && sed -i 's/^Version: .*/Version: 9.9.9/' next/DEBIAN/control"
    login.host.run(
        "sh", "-ec", f"cd {FOLDER} && {repack} && dpkg-deb -Znone -b next next.deb", timeout=WITHIN_S
    )
    own = login.host.read(LOGROTATE) + b"# our own line\n"
    login.host.write(LOGROTATE, own)
    before, settings = login.unit("MainPID"), login.host.read(SETTINGS)
    login.submit("upgrade", "sleep 8; echo on")
    login.dpkg("--install", f"{FOLDER}/next.deb")
    assert login.unit("MainPID") not in {before, "0"}
    assert login.host.read(LOGROTATE) == own
    assert login.host.read(SETTINGS) == settings
    eventually(lambda: "Succeeded" in login.as_alice("jobs", "upgrade"))
    assert "on\n" in login.as_alice("logs", "upgrade")


def test_a_removal_keeps_the_settings_and_the_journal(login: Login) -> None:
    login.machine.run("systemctl", "mask", "redbox")  # as for a maintenance
    login.dpkg("--remove", "red-box")
    assert login.unit("ActiveState") == "inactive"
    login.machine.run("systemctl", "unmask", "redbox")
    assert login.unit("LoadState") == "not-found"
    assert login.there("/usr/lib/redbox", "/usr/bin/redbox", AGENT) == []
    kept = (SETTINGS, SECRET, SUDOERS)
    assert login.there(*kept) == list(kept)


def test_a_purge_keeps_what_another_installation_uses_by_now(login: Login) -> None:
    secret = login.host.read(SECRET)
    login.init(f"{TARBALL_PLACE}/bin/redbox")
    login.dpkg("--purge", "red-box")
    assert login.host.read(SECRET) == secret
    assert login.there(SETTINGS, UNIT, AGENT) == [SETTINGS, UNIT, AGENT]
    login.host.run("id", "redbox")


def test_a_purge_leaves_nothing(login: Login) -> None:
    login.dpkg("--install", f"{FOLDER}/next.deb")
    login.dpkg("--purge", "red-box")
    assert login.there("/etc/redbox", SUDOERS, LOGROTATE, SECRET, "/var/log/redbox", AGENT) == []
    assert login.host.run("id", "redbox", check=False).returncode != 0
    assert login.host.run("getent", "group", "redbox-users", check=False).returncode != 0
    assert "red-box" not in login.machine.run("dpkg-query", "--list").stdout
