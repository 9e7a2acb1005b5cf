"""One login by ssh, and what its failures mean, each in a sentence with the cure.

sshd says little of why it refuses a login; what it offered before and after the key says more.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from redbox.agents.errors import AgentRefused, AgentUnavailable, LoginDenied, UserRefused
from redbox.agents.transports.ssh_ca import SshCredential

# Preferred, not required. Measured: files are read at 200-270 MB/s, with ChaCha20, asyncssh's first choice,
# at 165-195.
FAST_CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
METHODS = "publickey,keyboard-interactive,password"
"""The last two are never used: that sshd asks for them is what is to be known."""
LOGIN_TIMEOUT = "Login timeout expired"
"""What asyncssh says where sshd has not answered in time."""
TOO_FEW_ALGORITHMS = "it is too old, or its HostKeyAlgorithms, KexAlgorithms or Ciphers allow too little"
LONGEST_NOTICE = 200
CONNECT_S = 5.0
"""For one of several addresses of a name."""


@dataclass(frozen=True, slots=True)
class SshHost:
    """A host with sshd. `known_hosts` is a file in the format of ssh, which may name a host CA."""

    host: str
    known_hosts: Path
    port: int = 22
    keepalive_s: float = 10.0  # three unanswered ones end the connection
    login_s: float = 15.0


class KeyOnlyClient(asyncssh.SSHClient):
    """Offers one key, and records what sshd asked for."""

    def __init__(self, credential: SshCredential) -> None:
        self._credential = credential
        self.key_asked = 0
        self.also_asked: list[str] = []
        self._connection: asyncssh.SSHClientConnection | None = None
        self.notice = ""  # the last line that sshd has shown: its banner, or why no user may log in

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    @property
    def is_served(self) -> bool:
        """Whether sshd has taken the connection, and said its version."""
        return self._connection is not None and bool(self._connection.get_extra_info("server_version"))

    def auth_banner_received(self, msg: str, lang: str) -> None:  # noqa: ARG002 (asyncssh's names)
        lines = "".join(char if char.isprintable() else "\n" for char in msg).split("\n")
        self.notice = next((line for line in reversed(lines) if line.strip()), self.notice)[:LONGEST_NOTICE]

    def public_key_auth_requested(
        self,
    ) -> list[asyncssh.SSHKey | tuple[asyncssh.SSHKey, asyncssh.SSHCertificate]] | None:
        self.key_asked += 1
        if self.key_asked > 1:
            return None
        key, certificate = self._credential.key, self._credential.certificate
        return [(key, certificate)] if certificate else [key]

    def kbdint_auth_requested(self) -> str | None:
        self.also_asked.append("a second factor or a password at a prompt (keyboard-interactive)")
        return None

    def password_auth_requested(self) -> str | None:
        self.also_asked.append("a password")
        return None


async def log_in(
    node: SshHost,
    user: str,
    credential: SshCredential,
    *,
    connected: socket.socket | None = None,
    through: asyncssh.SSHClientConnection | None = None,
) -> asyncssh.SSHClientConnection:
    """Log in over this connection, or through another login; raises AgentRefused or AgentUnavailable."""
    where = f"{user}@{node.host}:{node.port}"
    client = KeyOnlyClient(credential)
    way: dict[str, object] = {"sock": connected} if connected is not None else {}
    try:
        return await asyncssh.connect(
            node.host,
            node.port,
            **way,
            tunnel=through or (),
            username=user,
            client_factory=lambda: client,
            client_keys=(),
            known_hosts=str(node.known_hosts),
            config=None,
            agent_path=None,
            preferred_auth=METHODS,
            encryption_algs=FAST_CIPHERS,
            keepalive_interval=node.keepalive_s,
            login_timeout=node.login_s,
        )
    except asyncssh.PermissionDenied as error:
        raise UserRefused(
            f"sshd refuses {where}: {_why_refused(client, credential, error.reason)}"
        ) from error
    except asyncssh.HostKeyNotVerifiable as error:
        raise AgentRefused(_why_not_verified(node, where, error.reason)) from error
    except asyncssh.KeyExchangeFailed as error:
        raise AgentRefused(
            f"{where} has no algorithm in common with red-box ({error.reason}): {TOO_FEW_ALGORITHMS}"
        ) from error
    except asyncssh.ChannelOpenError as error:
        raise AgentUnavailable(
            f"the jump host does not connect to {where}: {error.reason}: it must reach that address, "
            "and have AllowTcpForwarding"
        ) from error
    except ValueError as error:
        raise AgentRefused(f"cannot connect to {where}: {error}: check {node.known_hosts}") from error
    except (OSError, asyncssh.Error) as error:
        if client.key_asked and isinstance(error, asyncssh.DisconnectError) and error.reason != LOGIN_TIMEOUT:
            raise LoginDenied(
                f"sshd of {where} ended the login after the key ({error.reason}{_shown(client)}): it lets "
                "no user in at present (/etc/nologin), or the account may not log in (PAM, MaxAuthTries)"
            ) from error
        raise AgentUnavailable(f"no connection to {where}: {error}{_why_dropped(client, error)}") from error


async def open_connection(
    node: SshHost, preferred: str | None, avoided: str | None = None
) -> tuple[socket.socket, str]:
    """Connect to one of the name's addresses: the preferred one while it answers, the avoided one last."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise AgentUnavailable(
            f"the name {node.host} has no address ({error}): check agents.ssh.host, and DNS"
        ) from error
    addresses = dict.fromkeys((entry[0], entry[4]) for entry in found)
    ordered = sorted(addresses, key=lambda address: (address[1][0] == avoided, address[1][0] != preferred))
    errors: list[str] = []
    for family, address in ordered:
        opened = socket.socket(family, socket.SOCK_STREAM)
        opened.setblocking(False)  # noqa: FBT003 (the standard library has no keyword for it)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.sock_connect(opened, address)
        except (OSError, TimeoutError) as error:
            opened.close()
            errors.append(f"{address[0]}: {str(error) or 'no answer'}")
        except BaseException:
            opened.close()
            raise
        else:
            return opened, str(address[0])
    raise AgentUnavailable(f"no connection to {node.host}:{node.port}: {'; '.join(errors)}")


def _why_refused(client: KeyOnlyClient, credential: SshCredential, reason: str) -> str:
    wants = " and ".join(dict.fromkeys(client.also_asked))
    if client.key_asked == 0:
        return (
            f"it takes no public keys here{f', only {wants}' if wants else ''}: the site would have to set "
            "PubkeyAuthentication for this account and red-box's address"
        )
    if client.key_asked == 1 and wants:
        return (
            f"it accepted the key and asks for {wants} too, which no program can give: the site would "
            "have to set `AuthenticationMethods publickey` for this account and "
            "red-box's address (`Match Address`)"
        )
    if credential.certificate is not None:
        return (
            f"{reason}. It does not accept the certificate: compare both clocks, the CA with "
            "TrustedUserCAKeys, and the certificate's source-address with the address from which "
            "red-box connects"
        )
    return f"{reason}. The key is not in this account's authorized_keys, or the account may not log in"


def _why_not_verified(node: SshHost, where: str, reason: str) -> str:
    host_keys, authorities, revoked, *_ = asyncssh.match_known_hosts(
        str(node.known_hosts), node.host, "", node.port
    )
    if host_keys or authorities or revoked:
        return (
            f"the host key of {where} has changed, or another host answers in its place ({reason}): ask "
            f"the site for its new key before you replace the line in {node.known_hosts}"
        )
    return (
        f"the host key of {where} is not in {node.known_hosts} ({reason}): add the line that `ssh-keyscan "
        f"-p {node.port} {node.host}` prints, after comparing it with the site's"
    )


def _shown(client: KeyOnlyClient) -> str:
    return f"; it says: {client.notice!r}" if client.notice else ""


def _why_dropped(client: KeyOnlyClient, error: Exception) -> str:
    """At once where sshd has too many connections, or bans the address; later by what was said in between."""
    if not isinstance(error, asyncssh.ConnectionLost | ConnectionResetError):
        return ""
    if client.is_served:
        return f" (sshd may have no algorithm in common with red-box: {TOO_FEW_ALGORITHMS})"
    return " (sshd drops connections beyond MaxStartups, and fail2ban those of whom it bans)"
