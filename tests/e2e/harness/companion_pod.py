"""A companion as a process on a host of the bed, as in a pod there: without rights, far from red-box."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.plan import SERVICE_PORT
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from tests.e2e.harness.redbox_jobs import new_key
from tests.e2e.harness.redbox_server import RedboxServer

SOURCES = (CHECKOUT / "companion/redbox_companion", CHECKOUT / "redbox/redbox_shared")
LIBRARY = "/opt/redbox-companion"
USER = "nobody"
ENDS_WITHIN_S = 120
REMEMBER_PID = 'echo $$ >"$0/pid"; exec "$@"'
RUN = (
    "import sys; sys.path.insert(0, sys.argv.pop()); from redbox_companion.cli import main; sys.exit(main())"
)
COMMAND = ("python3", "-I", "-c", RUN, LIBRARY)


def install(host: Host) -> None:
    """The checkout's companion, compiled as it is in its image."""
    for package in SOURCES:
        for source in package.rglob("*.py"):
            path = f"{LIBRARY}/{source.relative_to(package.parent)}"
            host.run("install", "-d", "-m", "755", LIBRARY, str(Path(path).parent))
            host.write(path, source.read_bytes())
    host.run("python3", "-m", "compileall", "-q", LIBRARY)


@dataclass
class CompanionPod:
    """What the operator makes of one attempt, and the companion in it."""

    host: Host
    server: RedboxServer
    request: Mapping[str, Any]
    user: str = "alice"
    key: str = field(default_factory=new_key)
    results: Mapping[str, Any] | None = None

    @property
    def folder(self) -> str:
        return f"/tmp/companion-{self.key}"

    def introduce(self) -> None:
        """Write what the companion finds in its pod."""
        self.host.run("install", "-d", "-o", USER, self.folder, f"{self.folder}/results")
        files = {
            "request.json": json.dumps(self.request).encode(),
            "token": self.server.token_of(self.user).encode(),
            "ca.crt": self.server.authority.certificate,
        }
        for name, content in files.items():
            self.host.write(f"{self.folder}/{name}", content)

    def environment(self) -> dict[str, str]:
        """What the operator tells it."""
        told = {
            "REDBOX_ENDPOINT": f"https://{self.server.login.spec.address}:{SERVICE_PORT}",
            "REDBOX_KEY": self.key,
            "REDBOX_CA_FILE": f"{self.folder}/ca.crt",
            "REDBOX_REQUEST_FILE": f"{self.folder}/request.json",
            "REDBOX_TOKEN_FILE": f"{self.folder}/token",
            "REDBOX_TERMINATION_FILE": f"{self.folder}/termination",
            "REDBOX_RESULTS_FOLDER": f"{self.folder}/results",
        }
        if self.results is not None:
            told["REDBOX_RESULTS"] = json.dumps(self.results)
        return told

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        """A companion; another one may run already."""
        command = ("sh", "-c", REMEMBER_PID, self.folder, *COMMAND)
        pipe, environment = subprocess.PIPE, self.environment() | more
        return self.host.popen(*command, user=USER, env=environment, stdout=pipe, stderr=pipe)

    def run(self, **more: str) -> subprocess.CompletedProcess[bytes]:
        """From its start to its end."""
        with self.start(**more) as companion:
            out, err = companion.communicate(timeout=ENDS_WITHIN_S)
        return subprocess.CompletedProcess((), companion.returncode, out, err)

    def pid(self) -> str:
        """In the host's own numbers."""
        path = f"{self.folder}/pid"
        wait_until(
            lambda: self.host.run("test", "-s", path, check=False).returncode == 0, 30, "no companion began"
        )
        return self.host.read(path).decode().strip()

    @property
    def word(self) -> dict[str, Any]:
        word: dict[str, Any] = json.loads(self.host.read(f"{self.folder}/termination"))
        return word
