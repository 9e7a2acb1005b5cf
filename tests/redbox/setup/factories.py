"""Ways to spoil a good login node, one at a time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from redbox.callers.unix_accounts import UnixAccount
from redbox.server.certificates import issue_server, make_authority
from redbox.setup.checks.machine import ProcessOutput
from tests.redbox.callers.factories import ISSUER
from tests.redbox.setup.fakes import (
    AUDIENCE,
    NOW,
    REDBOX,
    SLURM_CONFIG,
    File,
    LoginNode,
    settings_text,
)

Change = Callable[[LoginNode], object]


def set_file(path: str, **changes: Any) -> Change:
    def change(host: LoginNode) -> None:
        host.files[path] = replace(host.files.get(path, File()), **changes)

    return change


def remove(path: str) -> Change:
    return lambda host: host.files.pop(path)


def answer(command: str, *ran: Any) -> Change:
    return lambda host: host.commands.update({command: ProcessOutput(*ran)})


def configure(**sections: Any) -> Change:
    return set_file("/etc/redbox/redbox.yaml", content=settings_text(**sections).encode())


def slurm_says(old: str, new: str) -> Change:
    return answer("/usr/bin/scontrol show config", 0, SLURM_CONFIG.replace(old, new))


def account(name: str, uid: int, *groups: int) -> Change:
    return lambda host: host.accounts.update({name: UnixAccount(name, uid, frozenset(groups))})


ALICE_OF_PHYSICS = {"cluster": "prod", "namespaces": ["physics"], "user": "alice"}


def rule(**changes: Any) -> Change:
    written = {**ALICE_OF_PHYSICS, **changes}
    return configure(mapping={"rules": [{key: value for key, value in written.items() if value is not None}]})


def controllers(*accounts: str, roles: Sequence[str] = ("operator", "reader")) -> dict[str, Any]:
    """A rule for the controllers of Kubernetes."""
    return {
        "cluster": "prod",
        "namespaces": ["redbox-system"],
        "service_accounts": [*accounts],
        "roles": [*roles],
    }


def cluster(**changes: Any) -> dict[str, Any]:
    good = {
        "name": "prod",
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "jwks_file": "/etc/redbox/prod.jwks.json",
    }
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


BY_URL = configure(callers={"clusters": [cluster(jwks_file=None, jwks_url="https://k/openid/v1/jwks")]})
BY_SSH = {
    "transport": "ssh",
    "ssh": {
        "host": "login",
        "ca_key_file": "/etc/redbox/ssh-ca.key",
        "addresses": ["10.77.0.1"],
    },
}
SSHD = "/usr/sbin/sshd"


def both(*changes: Change) -> Change:
    def change(host: LoginNode) -> None:
        for apply in changes:
            apply(host)

    return change


def good_ssh(host: LoginNode) -> None:
    configure(agents=BY_SSH)(host)
    host.files["/etc/redbox/ssh-ca.key"] = File(b"key", 0o600, REDBOX)
    host.files["/etc/redbox/known_hosts"] = File(b"login ssh-ed25519 AAAA")
    host.files[SSHD] = File(mode=0o755)
    host.commands[f"{SSHD} -T -C user=root"] = ProcessOutput(0, "port 22\ntrustedusercakeys none\n")


def certificate(**changes: Any) -> Change:
    def change(host: LoginNode) -> None:
        made = {"names": ["login"], "addresses": [], "now": NOW, **changes}
        authority = make_authority("x", made["now"])
        server = issue_server(authority, made["names"], made["addresses"], made["now"])
        host.files["/etc/redbox/tls/server.crt"].content = server.certificate
        host.files["/etc/redbox/tls/server.key"].content = server.key

    return change


def move_clock(**by: int) -> Change:
    return lambda host: setattr(host, "clock", NOW + dt.timedelta(**by))


def set_host(**values: Any) -> Change:
    def change(host: LoginNode) -> None:
        for name, value in values.items():
            setattr(host, name, value)

    return change
