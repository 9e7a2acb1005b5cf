"""`ssh`: red-box may run anywhere, and the login node needs nothing but sshd and a Python.

One connection per agent, since each logs in as its own user. Host keys are always checked; no configuration
file, no ssh-agent and no key of the server's own account is used. The command is a constant.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import asyncssh

from redbox.agents.errors import AgentRefused, AgentUnavailable
from redbox.agents.program.wire import MAX_PAYLOAD
from redbox.agents.protocol.connection import AgentProcess
from redbox.agents.transports.base import check_user, is_agent_refusal
from redbox.agents.transports.bootstrap import COMMAND, bootstrap_preamble
from redbox.agents.transports.ssh_ca import SshCredential
from redbox.core.domain import UnixUser

MAX_STDERR = 4096
# Preferred, not required. Measured: files are read at 200-270 MB/s, with ChaCha20, asyncssh's first choice,
# at 165-195.
FAST_CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
COMMAND_NOT_FOUND = 127


class CredentialProvider(Protocol):
    """The source of the users' keys: `KeyDirectory` or `CertificateAuthority`."""

    def credential(self, user: UnixUser) -> SshCredential:
        """Return this user's login key; raises AgentRefused."""


@dataclass(frozen=True, slots=True)
class LoginNode:
    """The host of the agents. `known_hosts` is a file in the format of ssh, which may name a host CA."""

    host: str
    known_hosts: Path
    port: int = 22
    keepalive_s: float = 10.0  # three unanswered ones end the connection
    login_s: float = 15.0


class RemoteProcess:
    """An agent on the login node, with an SSH connection of its own."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
        preamble: bytes,
    ) -> None:
        self.preamble = preamble
        self._connection = connection
        self._process = process
        self._stderr = b""

    async def read(self) -> bytes:
        try:
            return await self._process.stdout.read(MAX_PAYLOAD)
        except asyncssh.Error as error:
            raise ConnectionError(str(error)) from error

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # closed: the reader gets the error
            self._process.stdin.write(data)

    async def drain(self) -> None:
        try:
            await self._process.stdin.drain()
        except asyncssh.Error as error:
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._process.stdin.write_eof()

    def kill(self) -> None:
        self._connection.abort()

    async def wait(self) -> int | None:
        """Wait until the remote process ends or the connection breaks: the difference is not visible here."""
        await self._process.wait_closed()
        with contextlib.suppress(asyncssh.Error, OSError):  # the connection broke, and stderr is lost
            self._stderr += await self._process.stderr.read(MAX_STDERR)
        self._connection.close()
        await self._connection.wait_closed()
        return self._process.exit_status

    def stderr_text(self) -> str:
        return self._stderr.decode(errors="replace").strip()


class SshTransport:
    """Starts agents on one login node."""

    name = "ssh"

    def __init__(self, node: LoginNode, credentials: CredentialProvider) -> None:
        self._node = node
        self._credentials = credentials

    async def start(self, user: UnixUser) -> AgentProcess:
        check_user(user)
        connection = await self._connect(user)
        try:
            process = await connection.create_process(
                COMMAND, encoding=None, window=2 * MAX_PAYLOAD, request_pty=False
            )
        except BaseException as error:
            connection.abort()
            if isinstance(error, asyncssh.Error):
                raise AgentUnavailable(
                    f"{self._node.host} did not start the agent's command: {error}"
                ) from error
            raise
        return RemoteProcess(connection, process, bootstrap_preamble())

    async def _connect(self, user: UnixUser) -> asyncssh.SSHClientConnection:
        credential = await asyncio.to_thread(self._credentials.credential, user)
        where = f"{user.name}@{self._node.host}:{self._node.port}"
        keys: list[object] = [
            (credential.key, credential.certificate) if credential.certificate else credential.key
        ]
        try:
            return await asyncssh.connect(
                self._node.host,
                self._node.port,
                username=user.name,
                client_keys=keys,
                known_hosts=str(self._node.known_hosts),
                config=None,
                agent_path=None,
                preferred_auth="publickey",
                encryption_algs=FAST_CIPHERS,
                keepalive_interval=self._node.keepalive_s,
                login_timeout=self._node.login_s,
            )
        except asyncssh.PermissionDenied as error:
            raise AgentRefused(f"sshd refuses {where}: {error.reason}") from error
        except asyncssh.HostKeyNotVerifiable as error:
            raise AgentRefused(
                f"the host key of {where} is not in {self._node.known_hosts}: {error.reason}"
            ) from error
        except ValueError as error:
            raise AgentRefused(
                f"cannot connect to {where}: {error}: check {self._node.known_hosts}"
            ) from error
        except (OSError, asyncssh.Error) as error:
            raise AgentUnavailable(f"no connection to {where}: {error}") from error

    def is_refusal(self, status: int | None, stderr: str) -> bool:  # noqa: ARG002 # only sudo's is read
        return is_agent_refusal(status) or status == COMMAND_NOT_FOUND
