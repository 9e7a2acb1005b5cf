"""fail2ban (Debian's package, with its own filter and limits) on the syslog of an sshd.

It changes no firewall: whom it bans is asked of it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.deploy.debian_programs import unpacked

WITHIN_S = 60
JAIL = """\
[DEFAULT]
backend = polling
action =
ignoreself = false

[sshd]
mode = {mode}
logpath = {log}
"""


@dataclass(frozen=True)
class Fail2Ban:
    """A running one with the jail `sshd`."""

    folder: Path
    log: Path

    @property
    def own_log(self) -> Path:
        return self.folder / "fail2ban.log"

    def banned(self) -> set[str]:
        """Whom it bans, once it has read the file to its end: what is written last is read last."""
        last = f"192.0.2.{1 + self.log.read_text().count(' from 192.0.2.') // 5}"
        for number in range(5):
            line = f"sshd[{2**20 + number}]: Failed password for root from {last} port 1 ssh2"
            write_line(self.log, line)
        give_up_at = time.monotonic() + WITHIN_S
        while last not in (found := set(self._client("get", "sshd", "banip").split())):
            assert time.monotonic() < give_up_at, "fail2ban does not read its log"
            time.sleep(0.1)
        return {address for address in found if not address.startswith("192.0.2.")}

    def _client(self, *words: str) -> str:
        argv = self.command("fail2ban-client", *words)
        return subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True).stdout

    def command(self, program: str, *words: str) -> list[str]:
        own = ("-c", "fail2ban", "-s", "socket", "-p", "pid")
        files = [str(self.folder / word) if number % 2 else word for number, word in enumerate(own)]
        return ["/usr/bin/python3", str(unpacked("fail2ban") / "usr/bin" / program), *files, *words]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(unpacked("fail2ban") / "usr/lib/python3/dist-packages")}


@contextmanager
def fail2ban(log: Path, folder: Path, mode: str) -> Iterator[Fail2Ban]:
    """Run one until the block ends; it counts what is written from now on."""
    made = Fail2Ban(folder, log)
    folder.mkdir()
    log.write_text("")
    subprocess.run(["cp", "-r", unpacked("fail2ban") / "etc/fail2ban", folder / "fail2ban"], check=True)
    (folder / "fail2ban/jail.local").write_text(JAIL.format(mode=mode, log=log))
    (folder / "fail2ban/fail2ban.local").write_text("[Definition]\ndbfile = None\n")
    server = made.command("fail2ban-server", "-f", "-x", "--logtarget", str(made.own_log), "start")
    with subprocess.Popen(server, env=environment(), stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(made, process)
            yield made
        finally:
            process.terminate()


@contextmanager
def syslog(socket_path: Path, log: Path) -> Iterator[None]:
    """Write down what is sent to the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(socket_path))
        socket_path.chmod(0o666)
        writer = threading.Thread(target=_write_down, args=(listening, log))
        writer.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", str(socket_path))
            writer.join(WITHIN_S)


def _write_down(listening: socket.socket, log: Path) -> None:
    """Until an empty message: `<38>Nov 25 21:00:00 sshd[4711]: Failed ...`."""
    while message := listening.recv(65536).decode():
        write_line(log, message.split(maxsplit=3)[3])


def write_line(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{datetime.now().astimezone():%b %e %H:%M:%S} login {line}\n")


def _wait_for(made: Fail2Ban, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + WITHIN_S
    while True:
        assert process.poll() is None, made.own_log.read_text()
        try:
            made.banned()
        except subprocess.CalledProcessError:
            assert time.monotonic() < give_up_at, made.own_log.read_text()
            time.sleep(0.2)
        else:
            return
