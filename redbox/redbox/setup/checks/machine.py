"""What `redbox check` may look at: this host, through a door so narrow that a test can stand in its place."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Protocol, TypeVar

from redbox.agents.install_texts import check_agent_file
from redbox.callers.tokens.kubernetes_api import ApiAccess, ApiServer, NoAnswer
from redbox.callers.unix_accounts import AccountLookup, HostAccounts

Answer = TypeVar("Answer")
BUSY = "in use"
PLAIN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class FilePermissions:
    """Whose a file is, and who may do what with it."""

    uid: int
    mode: int
    is_directory: bool

    def is_open_to(self, bits: int) -> bool:
        """Whether any of these mode bits is set."""
        return bool(self.mode & bits)


@dataclass(frozen=True, slots=True)
class ProcessOutput:
    """What became of a command; code None: it could not be started, or did not end in time."""

    code: int | None
    stdout: str = ""
    stderr: str = ""

    @property
    def words(self) -> str:
        """What it said, in one line."""
        return " ".join((self.stderr or self.stdout).split())[:300] or f"exit status {self.code}"


class Machine(AccountLookup, Protocol):
    """This host, as far as `redbox check` looks at it."""

    uid: int

    def now(self) -> datetime:
        """What time it is here."""
        ...

    def facts(self, path: Path) -> FilePermissions | None:
        """Whose the file is, links followed; None where there is none."""
        ...

    def resolve(self, path: Path) -> Path:
        """The path without symbolic links."""
        ...

    def read(self, path: Path) -> bytes | None:
        """A file's content; None where it cannot be read."""
        ...

    def free_bytes(self, path: Path) -> int:
        """How much room its file system has."""
        ...

    def find_tool(self, name: str, directories: str) -> str | None:
        """Where a command is."""
        ...

    def run(
        self, argv: Sequence[str], deadline_s: float, environment: Mapping[str, str] | None = None
    ) -> ProcessOutput:
        """Run a command in a plain environment, with these variables besides."""
        ...

    def why_not_listen(self, address: str, port: int) -> str | None:
        """Why nobody can listen there; `BUSY` where somebody does."""
        ...

    def answers_at(self, unix_socket: Path) -> bool:
        """Whether a server accepts connections there."""
        ...

    def fetch(self, url: str, access: ApiAccess) -> bytes:
        """GET; raises NoAnswer."""
        ...

    def time_at(self, url: str, access: ApiAccess) -> datetime | None:
        """What time it is at that server; None where it does not say."""
        ...

    def agent_flaws(self, path: Path) -> list[str]:
        """What is wrong with the installed agent."""
        ...


class LocalMachine(HostAccounts):
    """The host that this runs on."""

    def __init__(self) -> None:
        self.uid = os.geteuid()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def facts(self, path: Path) -> FilePermissions | None:
        try:
            status = path.stat()
        except OSError:
            return None
        return FilePermissions(status.st_uid, stat.S_IMODE(status.st_mode), stat.S_ISDIR(status.st_mode))

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
        try:
            ended = subprocess.run(
                list(argv),
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=deadline_s,
                env={**PLAIN, **(environment or {})},
            )
        except subprocess.TimeoutExpired:
            return ProcessOutput(None, stderr=f"no answer within {deadline_s:g} s")
        except OSError as error:
            return ProcessOutput(None, stderr=str(error))
        return ProcessOutput(
            ended.returncode, ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")
        )

    def why_not_listen(self, address: str, port: int) -> str | None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((address, port))
                tried.listen()
            except OSError as error:
                return BUSY if error.errno == errno.EADDRINUSE else str(error.strerror)
        return None

    def answers_at(self, unix_socket: Path) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
            tried.settimeout(2)
            try:
                tried.connect(str(unix_socket))
            except OSError:
                return False
        return True

    def fetch(self, url: str, access: ApiAccess) -> bytes:
        return _ask(access, lambda server: server.get(url))

    def time_at(self, url: str, access: ApiAccess) -> datetime | None:
        try:
            return parsedate_to_datetime(_ask(access, lambda server: server.date(url)) or "")
        except (NoAnswer, ValueError):
            return None

    def agent_flaws(self, path: Path) -> list[str]:
        return list(check_agent_file(path))


def _ask(access: ApiAccess, ask: Callable[[ApiServer], Awaitable[Answer]]) -> Answer:
    async def do() -> Answer:
        server = ApiServer(access)
        try:
            return await ask(server)
        finally:
            await server.close()

    return asyncio.run(do())
