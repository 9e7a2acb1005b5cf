"""The host that `redbox check` inspects."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import ssl
import stat
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Protocol, TypeVar

from redbox.agents.install_texts import check_agent_file
from redbox.callers.errors import ApiServerUnavailable
from redbox.callers.tokens.api_access import ApiAccess
from redbox.callers.tokens.kubernetes_api import ApiServerClient
from redbox.callers.unix_accounts import AccountLookup, NssLookup
from redbox.core.secret_files import GROUP_READS, OTHERS, is_handed_in
from redbox.setup.install.host_service import accepts_connections

Answer = TypeVar("Answer")
PORT_IN_USE = "in use"
ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 (compared with, never bound to)
SOCKET_TIMEOUT_S = 2.0
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class FilePermissions:
    """A file's owner and mode."""

    uid: int
    mode: int
    is_directory: bool
    of_own_group: bool = False
    is_read_only: bool = False  # by its mount: nothing in this host's mounts can change it

    @property
    def is_secret(self) -> bool:
        """Whether only its owner can read it, or this process's own group, as a pod's Secrets."""
        return not self.mode & OTHERS & ~(GROUP_READS if self.of_own_group else 0)

    def is_open_to(self, bits: int) -> bool:
        """Whether any of these mode bits is set."""
        return bool(self.mode & bits)


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """The end of a command; code None: it could not be started, or exceeded its deadline."""

    code: int | None
    stdout: str = ""
    stderr: str = ""

    @property
    def summary(self) -> str:
        """Its output in one line, for a message."""
        return " ".join((self.stderr or self.stdout).split())[:300] or f"exit status {self.code}"


class SlurmHost(AccountLookup, Protocol):
    """The host on which agents run Slurm's commands: this one, or a login node."""

    @property
    def where(self) -> str:
        """Its name in a message."""
        ...

    def read(self, path: Path) -> bytes | None: ...

    def find_tool(self, name: str, directories: str) -> str | None: ...

    def run(
        self, argv: Sequence[str], deadline_s: float, environment: Mapping[str, str] | None = None
    ) -> ProcessOutput: ...


class Machine(NssLookup):
    """The host that this runs on: what `redbox check` reads of it. Tests replace it."""

    where = "this host"

    def __init__(self) -> None:
        self.uid = os.geteuid()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def permissions(self, path: Path) -> FilePermissions | None:
        """None: there is no such file."""
        try:
            status = path.stat()
        except OSError:
            return None
        # A kubelet gives a token that it renews to the pod's own user; the pod cannot write its folder.
        is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
        return FilePermissions(
            status.st_uid,
            stat.S_IMODE(status.st_mode),
            stat.S_ISDIR(status.st_mode),
            of_own_group=is_handed_in(status) or (is_read_only and status.st_gid == os.getegid()),
            is_read_only=is_read_only,
        )

    def resolve(self, path: Path) -> Path:
        return path.resolve()

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except OSError:
            return None

    def free_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).free

    def find_tool(self, name: str, directories: str) -> str | None:
        return shutil.which(name, path=directories)

    def run(
        self, argv: Sequence[str], deadline_s: float, environment: Mapping[str, str] | None = None
    ) -> ProcessOutput:
        """Run it with these variables beside PATH and LC_ALL."""
        try:
            ended = subprocess.run(
                list(argv),
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=deadline_s,
                env={**ENVIRONMENT, **(environment or {})},
            )
        except subprocess.TimeoutExpired:
            return ProcessOutput(None, stderr=f"no answer within {deadline_s:g} s")
        except OSError as error:
            return ProcessOutput(None, stderr=str(error))
        return ProcessOutput(
            ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")
        )

    def listen_error(self, address: str, port: int) -> str | None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
                listener.listen()
            except OSError as error:
                return PORT_IN_USE if error.errno == errno.EADDRINUSE else str(error.strerror)
        return None

    def accepts_connections(self, unix_socket: Path) -> bool:
        return accepts_connections(unix_socket, SOCKET_TIMEOUT_S)

    def serves(self, address: str, port: int, certificate: bytes) -> bool:
        """Whether what listens there shows the certificate, the first of a chain or below a text."""
        here = "127.0.0.1" if address in ANY_ADDRESS else address
        try:
            shown = ssl.get_server_certificate((here, port), timeout=SOCKET_TIMEOUT_S)
        except OSError:
            return False
        return "".join(shown.split()) in "".join(certificate.decode(errors="replace").split())

    def fetch(self, url: str, access: ApiAccess) -> bytes:
        """Raises ApiServerUnavailable."""
        return _request(access, lambda server: server.get(url))

    def time_at(self, url: str, access: ApiAccess) -> datetime | None:
        try:
            return parsedate_to_datetime(_request(access, lambda server: server.date(url)) or "")
        except (ApiServerUnavailable, ValueError):
            return None

    def agent_problems(self, path: Path) -> list[str]:
        """Each ends in a colon and its cure."""
        return list(check_agent_file(path))


def _request(access: ApiAccess, send: Callable[[ApiServerClient], Awaitable[Answer]]) -> Answer:
    async def run() -> Answer:
        server = ApiServerClient(access)
        try:
            return await send(server)
        finally:
            await server.close()

    return asyncio.run(run())
