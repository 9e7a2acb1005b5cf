"""`ssh`: red-box may run anywhere, and the login node needs nothing but sshd and a Python.

One connection per agent, since each logs in as its own user. Host keys are always checked; no configuration
file, no ssh-agent and no key of the server's own account is used. The command is a constant.

Where one name has several hosts, all agents go to the address that answered last, as long as it answers.
Outcomes of submits are recorded in the home directory, which another host has, too. Where it has not, the
absence of a record proves nothing: a submit whose outcome is unknown is repeated held, and decided by its
mark in Slurm.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Protocol

import asyncssh

from redbox.agents.errors import AgentUnavailable, LoginDenied
from redbox.agents.program.wire import MAX_PAYLOAD
from redbox.agents.protocol.connection import AgentProcess
from redbox.agents.transports.base import check_user, is_agent_refusal
from redbox.agents.transports.bootstrap import COMMAND, bootstrap_preamble
from redbox.agents.transports.failed_logins import FailedLogins
from redbox.agents.transports.login_limit import LoginLimit
from redbox.agents.transports.ssh_ca import SshCredential
from redbox.agents.transports.ssh_login import SshHost, log_in, open_connection
from redbox.core.domain import UnixUser

MAX_STDERR = 4096
COMMAND_NOT_FOUND = 127


class CredentialProvider(Protocol):
    """The source of the users' keys: `KeyDirectory` or `CertificateAuthority`."""

    def credential(self, user: UnixUser) -> SshCredential:
        """Return this user's login key; raises AgentRefused."""

    def jump_credential(self, user: UnixUser) -> SshCredential:
        """Return the key for a jump host, which may forward a connection there and nothing else."""

    def expires_at(self) -> float | None:
        """When the first of them ends, in seconds since the epoch; None: none does."""


@dataclass(frozen=True, slots=True)
class LoginNode(SshHost):
    """The host of the agents, and the way to it."""

    jump: SshHost | None = None
    jump_user: str | None = None  # None: the agent's own user
    path: str | None = None  # where agents look for tools, if the host has no agent.conf
    failed_logins: FailedLogins = field(default_factory=FailedLogins)


class RemoteProcess:
    """An agent on the login node, with an SSH connection of its own."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
        preamble: bytes,
        through: asyncssh.SSHClientConnection | None = None,
    ) -> None:
        self.preamble = preamble
        self._connection = connection
        self._process = process
        self._through = through
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

    def abandon(self) -> None:
        self.kill()

    def kill(self) -> None:
        self._connection.abort()
        if self._through is not None:
            self._through.abort()

    async def wait(self) -> int | None:
        """Wait until the remote process ends or the connection breaks: the difference is not visible here."""
        await self._process.wait_closed()
        with contextlib.suppress(asyncssh.Error, OSError):  # the connection broke, and stderr is lost
            self._stderr += await self._process.stderr.read(MAX_STDERR)
        self._connection.close()
        await self._connection.wait_closed()
        if self._through is not None:
            self._through.close()
            await self._through.wait_closed()
        return self._process.exit_status

    def stderr_text(self) -> str:
        return self._stderr.decode(errors="replace").strip()


class SshTransport:
    """Starts agents on one login node."""

    name = "ssh"

    def __init__(self, node: LoginNode, credentials: CredentialProvider) -> None:
        self._node = node
        self._credentials = credentials
        self._logins = LoginLimit(node.failed_logins)
        self._address: str | None = None  # of the host that answered last
        self._avoided: str | None = None  # of one that took a connection last, and dropped it

    async def start(self, user: UnixUser) -> AgentProcess:
        check_user(user)
        connection, through = await self._connect(user)
        try:
            process = await connection.create_process(
                COMMAND, encoding=None, window=2 * MAX_PAYLOAD, request_pty=False
            )
        except BaseException as error:
            for opened in (connection, through):
                if opened is not None:
                    opened.abort()
            if isinstance(error, asyncssh.Error):
                raise AgentUnavailable(
                    f"{self._node.host} did not start the agent's command: {error}: sshd must allow "
                    "this account a session (MaxSessions) and a command"
                ) from error
            raise
        return RemoteProcess(
            connection, process, bootstrap_preamble(self._node.path, home_first=True), through
        )

    async def _connect(
        self, user: UnixUser
    ) -> tuple[asyncssh.SSHClientConnection, asyncssh.SSHClientConnection | None]:
        """Log in, through the jump host if there is one."""
        credential = await self._credentials_of(user, jump=False)
        jump_login = await self._jump_login(user)  # first: a login without it would count as failed
        async with self._logins.login(credential.identity):
            through = None
            try:
                if jump_login is None:
                    connection = await self._log_in_directly(user, credential)
                else:
                    through = await self._jump(*jump_login)
                    connection = await log_in(self._node, user.name, credential, through=through)
            except BaseException:
                if through is not None:
                    through.abort()
                raise
        return connection, through

    async def _log_in_directly(
        self, user: UnixUser, credential: SshCredential
    ) -> asyncssh.SSHClientConnection:
        opened, address = await open_connection(self._node, self._address, self._avoided)
        try:
            connection = await log_in(self._node, user.name, credential, connected=opened)
        except LoginDenied:
            raise
        except AgentUnavailable:
            self._address, self._avoided = None, address
            raise
        self._address, self._avoided = address, None
        return connection

    async def _jump_login(self, user: UnixUser) -> tuple[SshHost, str, SshCredential] | None:
        if self._node.jump is None:
            return None
        as_user = UnixUser(self._node.jump_user, user.uid) if self._node.jump_user else user
        return self._node.jump, as_user.name, await self._credentials_of(as_user, jump=True)

    async def _jump(
        self, jump: SshHost, user: str, credential: SshCredential
    ) -> asyncssh.SSHClientConnection:
        opened, _ = await open_connection(jump, None)
        return await log_in(jump, user, credential, connected=opened)

    async def _credentials_of(self, user: UnixUser, *, jump: bool) -> SshCredential:
        find = self._credentials.jump_credential if jump else self._credentials.credential
        return await asyncio.to_thread(find, user)

    def credentials_expire_at(self) -> float | None:
        return self._credentials.expires_at()

    def is_refusal(self, status: int | None, stderr: str) -> bool:  # noqa: ARG002 # only sudo's is read
        return is_agent_refusal(status) or status == COMMAND_NOT_FOUND
