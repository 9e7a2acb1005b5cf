"""A red-box of the tests' own on the bed's login host: what it is installed with, its life, and its callers.

Its settings, journal and certificate are in folders of its own, so that no other test meets them. Programs,
agent, sudoers line and sshd lines are where an administrator has them. It is called from the machine, over
TLS through the bed's forwarded port, by holders of opaque tokens and of tokens of a played cluster.
"""

from __future__ import annotations

import functools
import json
import secrets
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import jwt
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from redbox.agents.install_texts import render_agent_conf, render_sshd, render_sudoers
from redbox.agents.program.guard import DEFAULT_MIN_UID, DEFAULT_PATH
from redbox.agents.program_source import agent_source
from redbox.agents.transports.ssh_ca import KEY_TYPE
from redbox.agents.transports.sudo import AGENT_PATH
from redbox.server.certificates import CertificateAndKey, issue_server, make_authority
from redbox_api.client import RedboxClient
from redbox_api.requests.sender import Deadlines
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.plan import SERVICE_ACCOUNT, SERVICE_PORT
from redbox_bed.hosts.host import Daemon, Host
from redbox_bed.hosts.waiting import wait_until

NAME = "redbox-e2e"
CLUSTER = "played"
ISSUER = "https://kubernetes.played.example"
AUDIENCE = "redbox.dev/hpc1/e2e"
STARTS_WITHIN_S = 120
MAKE_TOKEN = f"""\
import sys
sys.path.insert(0, {login_node.LIBRARY!r})
from pathlib import Path
from redbox.callers.tokens.opaque_tokens import TokenStore
from redbox.core.clock import SystemClock
print(TokenStore(Path(sys.argv[1]), SystemClock()).create(sys.argv[2], 86400).secret)
"""


@functools.cache
def install(bed: Bed) -> None:
    """Programs, agent and sudoers line, once for all tests of a run."""
    login = bed.host("login")
    login_node.install(login, bed.places)
    login.write(AGENT_PATH, agent_source(), mode=0o755)
    login.write("/etc/redbox/agent.conf", render_agent_conf(min_uid=DEFAULT_MIN_UID, path=DEFAULT_PATH))
    login.write(login_node.SUDOERS, render_sudoers(), mode=0o440)
    login.run("visudo", "--check", "--quiet")


@dataclass(frozen=True)
class PlayedCluster:
    """A Kubernetes cluster as red-box sees one: an issuer with a key."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def token(self, namespace: str, account: str = "default", lives_s: int = 3000) -> str:
        """A token as a pod of this service account finds it."""
        now = int(time.time())
        names = {"namespace": namespace, "serviceaccount": {"name": account, "uid": f"uid-of-{account}"}}
        claims = {
            "iss": ISSUER,
            "aud": [AUDIENCE],
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "iat": now,
            "nbf": now,
            "exp": now + lives_s,
            "kubernetes.io": names,
        }
        return jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": "played"})

    def public_keys(self) -> bytes:
        public: dict[str, Any] = jwt.get_algorithm_by_name("ES256").to_jwk(
            self.key.public_key(), as_dict=True
        )
        return json.dumps({"keys": [{**public, "kid": "played", "alg": "ES256", "use": "sig"}]}).encode()


@dataclass
class RedboxServer:
    """One red-box. `user` is the account that it runs as."""

    bed: Bed
    user: str = SERVICE_ACCOUNT
    transport: str = "sudo"
    observer: str | None = None
    sections: Mapping[str, Any] = field(default_factory=dict)
    ssh: Mapping[str, Any] = field(default_factory=dict)
    """Of the way to the login node, what differs from the bed's login host."""
    wrapper: tuple[str, ...] = ()
    cluster: PlayedCluster = field(default_factory=PlayedCluster)
    name: str = field(default_factory=lambda: secrets.token_hex(4))
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def login(self) -> Host:
        return self.bed.host("login")

    @property
    def folder(self) -> str:
        """On the host's own disk: a journal belongs nowhere else."""
        return f"/var/lib/redbox/e2e-{self.name}"

    @property
    def socket(self) -> str:
        return f"{self.folder}/redbox.sock"

    @property
    def endpoint(self) -> str:
        forward = next(
            one for one in self.bed.plan.forwards if (one.host, one.target_port) == ("login", SERVICE_PORT)
        )
        return f"https://127.0.0.1:{forward.port}"

    @functools.cached_property
    def authority(self) -> CertificateAndKey:
        return make_authority(self.name, datetime.now(UTC))

    # ------------------------------------------------------------------------------------------ its life

    def introduce(self) -> None:
        """Write what `serve` reads."""
        owner = f"{self.user}:{self.user}"
        addresses = ["127.0.0.1", self.login.spec.address]
        certificate = issue_server(self.authority, [], addresses, datetime.now(UTC))
        self.login.run("chmod", "755", "/var/lib/redbox")  # the bed's own; here a server may be alice's
        self.login.run("install", "-d", "-o", self.user, "-g", self.user, "-m", "755", self.folder)
        files: dict[str, bytes] = {
            "server.crt": certificate.certificate,
            "server.key": certificate.key,
            "mark.secret": secrets.token_hex(32).encode(),
            "played.jwks.json": self.cluster.public_keys(),
        }
        if self.transport == "ssh":
            files |= trust_ssh_ca(self.login)
        for name, content in files.items():
            self.login.write(f"{self.folder}/{name}", content, mode=0o600, owner=owner)
        self.configure(self.sections)

    def configure(self, sections: Mapping[str, Any]) -> None:
        """Write the settings for its next start, with these sections."""
        self.sections = sections
        content = yaml.safe_dump(self.settings(), sort_keys=False).encode()
        owner = f"{self.user}:{self.user}"
        self.login.write(f"{self.folder}/redbox.yaml", content, mode=0o600, owner=owner)

    def settings(self) -> dict[str, Any]:
        """The settings file."""
        rules = [
            _rule("alices", ["default"], user="alice"),
            _rule("bobs", ["default"], user="bob"),
            _rule("redbox-system", ["redbox-operator"], roles=["operator", "reader"]),
        ]
        settings: dict[str, Any] = {
            "name": "hpc1",
            "listen": {"unix_socket": self.socket},
            "tls": {
                "certificate_file": f"{self.folder}/server.crt",
                "key_file": f"{self.folder}/server.key",
            },
            "callers": {
                "clusters": [
                    {
                        "name": CLUSTER,
                        "issuer": ISSUER,
                        "audience": AUDIENCE,
                        "jwks_file": f"{self.folder}/played.jwks.json",
                    }
                ],
                "tokens_file": f"{self.folder}/tokens.json",
            },
            "mapping": {"rules": rules},
            "agents": self._agents(),
            "jobs": {"journal": self.folder, "mark_secret": f"{self.folder}/mark.secret"},
            "audit": {"file": f"{self.folder}/audit.log"},
        }
        for section, values in self.sections.items():
            settings[section] = {**settings.get(section, {}), **values}
        return settings

    def _agents(self) -> dict[str, Any]:
        if self.transport != "ssh":
            return {"transport": self.transport}
        ssh = {
            "host": self.login.spec.address,
            "known_hosts": f"{self.folder}/known_hosts",
            "ca_key_file": f"{self.folder}/ssh-ca.key",
            "addresses": [self.login.spec.address],
            "observer": self.observer,
            **self.ssh,
        }
        return {"transport": "ssh", "ssh": ssh}

    def command(self) -> tuple[str, ...]:
        """What starts it."""
        return (*self.wrapper, login_node.PROGRAM, "serve", "--config", f"{self.folder}/redbox.yaml")

    def start(self) -> None:
        """Start it, and return when it serves."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start it, and do not wait."""
        end_red_box(self.login)
        self.login.ensure(Daemon(NAME, self.command(), user=self.user))

    def wait_until_ready(self) -> None:
        wait_until(self._is_ready, STARTS_WITHIN_S, "red-box did not begin to serve", log=self.log_path)

    def _is_ready(self) -> bool:
        if not self.login.running(NAME):
            raise AssertionError(f"red-box ended as soon as it was started: {self.log()[-2000:]}")
        try:
            return httpx.get(f"{self.endpoint}/readyz", verify=self.trust(), timeout=5).is_success
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """Kill -9, at once."""
        self.login.kill(NAME)

    def remove(self) -> None:
        """End it and its jobs, and take away what it kept."""
        if self.login.running(NAME):
            self.kill()
        for user in ("alice", "bob"):
            self.login.run("scancel", f"--user={user}", check=False)
        self.login.run("rm", "-rf", self.folder, SSHD_LINES)

    @property
    def log_path(self) -> Any:
        return self.login.log_path(NAME)

    def log(self) -> str:
        return str(self.log_path.read_text(errors="replace"))

    # ------------------------------------------------------------------------------------------ its callers

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.certificate.decode())

    def token_of(self, user: str) -> str:
        """An opaque token for a Unix user."""
        if user not in self.tokens:
            argv = ("python3", "-I", "-", f"{self.folder}/tokens.json", user)
            self.tokens[user] = self.login.run(*argv, user=self.user, stdin=MAKE_TOKEN).stdout.strip()
        return self.tokens[user]

    def client_of(self, user: str) -> RedboxClient:
        """The Unix user, by an opaque token."""
        return self.client(self.token_of(user))

    def client_of_account(self, namespace: str, account: str = "default") -> RedboxClient:
        """A service account of the cluster that the tests play."""
        return self.client(self.cluster.token(namespace, account))

    def client(self, token: str) -> RedboxClient:
        async def say() -> str:
            return token

        ca = self.authority.certificate.decode()
        return RedboxClient(self.endpoint, token=say, ca_bundle=ca, deadlines=Deadlines(answer=90, quiet=60))


def end_red_box(login: Host) -> None:
    """Free the port: of the one that is installed, and of what a killed test or benchmark has left."""
    for name in (login_node.SERVICE, NAME):
        if login.running(name):
            login.kill(name)


@contextmanager
def running(bed: Bed, **options: Any) -> Iterator[RedboxServer]:
    """A red-box for as long as a module of tests needs one."""
    install(bed)
    server = RedboxServer(bed, **options)
    try:
        server.introduce()
        server.start()
        yield server
    finally:
        server.remove()


def _rule(namespace: str, accounts: list[str], **made: Any) -> dict[str, Any]:
    return {"cluster": CLUSTER, "namespaces": [namespace], "service_accounts": accounts, **made}


# ---------------------------------------------------------------------------------------------- ssh

SSHD_LINES = "/etc/ssh/sshd_config.d/redbox-e2e.conf"
CA_PUBLIC = "/etc/redbox/ssh-ca.pub"


def trust_ssh_ca(login: Host) -> dict[str, bytes]:
    """Have the login host's sshd trust a new CA as an administrator would; returns what the server needs."""
    import asyncssh  # noqa: PLC0415 (takes half a second, for one transport of three)

    authority = asyncssh.generate_private_key(KEY_TYPE)
    login.write(CA_PUBLIC, authority.export_public_key())
    login.write(SSHD_LINES, render_sshd(ca_path=CA_PUBLIC))
    login.run("sshd", "-t")
    login.run("sh", "-c", "kill -HUP $(cut -d' ' -f1 /run/bed/sshd.pid)")
    host_key = login.run("ssh-keygen", "-y", "-f", "/etc/ssh/ssh_host_ed25519_key").stdout.strip()
    return {
        "ssh-ca.key": authority.export_private_key(),
        "known_hosts": f"{login.spec.address} {host_key}\n".encode(),
    }
