"""`redbox init`: decides which files to write, from those that are there. Pure; `installing` writes them.

Run again, it renews the server's certificate and makes what is missing. It never replaces what others rely
on: the settings, the mark secret (it signs marks on jobs that live), the CA (clusters hold its certificate),
and any certificate that its own CA did not sign. Kubernetes must be told once: audience and CA stay as they
are.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from redbox.agents.install_texts import render_agent_conf
from redbox.agents.program.guard import DEFAULT_MIN_UID, DEFAULT_PATH
from redbox.agents.program_source import agent_source
from redbox.callers.settings import AUDIENCE_PREFIX
from redbox.server.certificates import CertificateAndKey, facts_of, is_issued_by, issue_server, make_authority
from redbox.settings import Settings
from redbox.setup.install.example_settings import render_settings
from redbox.setup.install.layout import Layout, Whose
from redbox.setup.install.manifest import Introduction

MARK_SECRET_BYTES = 32
RENEW_AUTHORITY_WITHIN = timedelta(days=398)
ISSUER = "https://kubernetes.default.svc.cluster.local"
OPERATOR_NAMESPACE = "redbox-system"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the administrator said on the command line."""

    name: str
    cluster: str
    names: tuple[str, ...]  # the certificate's, the first one is the endpoint's
    addresses: tuple[str, ...] = ()
    port: int = 8443
    issuer: str = ISSUER
    operator_namespace: str = OPERATOR_NAMESPACE
    transport: Literal["sudo", "self"] = "sudo"


@dataclass(frozen=True, slots=True)
class Found:
    """What is there already."""

    settings: Settings | None = None
    authority: CertificateAndKey | None = None
    server: CertificateAndKey | None = None
    has_mark_secret: bool = False
    has_agent_settings: bool = False


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to write."""

    path: Path
    content: bytes
    mode: int
    whose: Whose


@dataclass(frozen=True, slots=True)
class InitPlan:
    """What to write, what to say about it, and what Kubernetes must know."""

    files: tuple[NewFile, ...]
    notes: tuple[str, ...]
    introduction: Introduction
    cluster: str


def plan_init(wishes: Wishes, found: Found, layout: Layout, now: datetime) -> InitPlan:
    """Decide what to write."""
    draft = _Draft(wishes, found, layout, now)
    audience = _plan_settings(draft)
    trusted = _plan_tls(draft)
    _plan_mark_secret(draft)
    if wishes.transport == "sudo":
        _plan_agent(draft)
    host = (wishes.names or wishes.addresses)[0]
    port = found.settings.listen.port if found.settings else wishes.port
    endpoint = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    introduction = Introduction(wishes.name, endpoint, audience, trusted)
    return InitPlan(tuple(draft.files), tuple(draft.notes), introduction, wishes.cluster)


@dataclass
class _Draft:
    wishes: Wishes
    found: Found
    layout: Layout
    now: datetime
    files: list[NewFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path, content: bytes, mode: int, whose: Whose, note: str) -> None:
        self.files.append(NewFile(path, content, mode, whose))
        self.notes.append(f"wrote {path}: {note}")

    def keep(self, path: Path, why: str) -> None:
        self.notes.append(f"kept {path}: {why}")


def _plan_settings(draft: _Draft) -> str:
    """Plan the settings, and return the audience: once fixed, it stays."""
    wishes, path, found = draft.wishes, draft.layout.settings, draft.found.settings
    new_audience = f"{AUDIENCE_PREFIX}{wishes.name}/{secrets.token_hex(8)}"
    if found is None:
        content = render_settings(first_settings(wishes, new_audience, draft.layout)).encode()
        check = "redbox check --personal" if wishes.transport == "self" else "redbox check"
        draft.write(path, content, 0o644, "root", f"look through it, then run {check}")
        return new_audience
    draft.keep(path, "settings are never overwritten; remove the file to have it made anew")
    audiences = {cluster.name: cluster.audience for cluster in found.callers.clusters}
    if wishes.cluster in audiences:
        return audiences[wishes.cluster]
    audience = next(iter(audiences.values()), new_audience)
    draft.notes.append(
        f"add cluster {wishes.cluster} to callers.clusters in {path}, with audience {audience}"
    )
    return audience


def first_settings(wishes: Wishes, audience: str, layout: Layout) -> Mapping[str, Any]:
    """The values that differ from the defaults, or that an administrator should see."""
    cluster = {
        "name": wishes.cluster,
        "issuer": wishes.issuer,
        "audience": audience,
        "jwks_file": layout.cluster_keys(wishes.cluster),
    }
    return {
        "name": wishes.name,
        "listen": {"port": wishes.port, "unix_socket": layout.runtime / "redbox.sock"},
        "tls": {"certificate_file": layout.certificate, "key_file": layout.key},
        "callers": {"clusters": [cluster], "tokens_file": layout.state / "tokens.json"},
        "mapping": {"rules": _rules_of_red_box_itself(wishes)},
        "agents": {"transport": wishes.transport},
        "jobs": {"journal": layout.state, "mark_secret": layout.mark_secret},
        "audit": {"file": layout.log / "audit.log"},
    }


def _rules_of_red_box_itself(wishes: Wishes) -> list[Mapping[str, Any]]:
    """Both controllers watch all jobs; resourced tells those of pods on virtual nodes."""
    where = {"cluster": wishes.cluster, "namespaces": [wishes.operator_namespace]}
    accounts = ["redbox-operator", "redbox-resourced"]
    return [{**where, "service_accounts": accounts, "roles": ["operator", "reader"]}]


def _plan_tls(draft: _Draft) -> bytes:
    """Plan CA and certificate, and return what clusters should trust."""
    found, layout = draft.found, draft.layout
    if found.server is not None and not _is_ours(found.server, found.authority):
        draft.keep(layout.certificate, "red-box's own CA did not sign it")
        draft.notes.append("caBundle below is that certificate: put your CA's in its place")
        return found.server.certificate
    authority = found.authority or make_authority(draft.wishes.name, draft.now)
    if found.authority is None:
        draft.write(layout.authority_certificate, authority.certificate, 0o644, "root", "the CA")
        draft.write(layout.authority_key, authority.key, 0o600, "root", "its key: only redbox init needs it")
    else:
        _note_age(draft, authority)
    _plan_certificate(draft, authority)
    return authority.certificate


def _is_ours(server: CertificateAndKey, authority: CertificateAndKey | None) -> bool:
    return authority is not None and is_issued_by(server.certificate, authority.certificate)


def _note_age(draft: _Draft, authority: CertificateAndKey) -> None:
    path, ends = draft.layout.authority_certificate, facts_of(authority.certificate).not_after
    draft.keep(path, f"the CA is valid until {ends:%Y-%m-%d}")
    if ends - draft.now < RENEW_AUTHORITY_WITHIN:
        draft.notes.append(
            f"the CA ends soon: remove {path.parent}, run redbox init again, "
            "and apply the new SlurmCluster in every cluster"
        )


def _plan_certificate(draft: _Draft, authority: CertificateAndKey) -> None:
    """Plan a new certificate for the names that are wished for, and those that the old one has."""
    before = facts_of(draft.found.server.certificate) if draft.found.server else None
    names = tuple(dict.fromkeys([*draft.wishes.names, *(before.names if before else ())]))
    addresses = tuple(dict.fromkeys([*draft.wishes.addresses, *(before.addresses if before else ())]))
    server = issue_server(authority, names, addresses, draft.now)
    ends = facts_of(server.certificate).not_after
    note = f"for {', '.join((*names, *addresses))} until {ends:%Y-%m-%d}; run redbox init again to renew it"
    chain = server.certificate + authority.certificate
    draft.write(draft.layout.certificate, chain, 0o644, "root", note)
    draft.write(draft.layout.key, server.key, 0o600, "service", "its key")


def _plan_mark_secret(draft: _Draft) -> None:
    path = draft.layout.mark_secret
    if draft.found.has_mark_secret:
        draft.keep(path, "jobs carry marks that are signed with it")
        return
    secret = secrets.token_hex(MARK_SECRET_BYTES) + "\n"
    note = "signs the marks on jobs; copy it to every standby, and nowhere else"
    draft.write(path, secret.encode(), 0o600, "service", note)


def _plan_agent(draft: _Draft) -> None:
    """The agent is always that of this release; its limits are the administrator's."""
    layout = draft.layout
    draft.write(layout.agent, agent_source(), 0o755, "root", "the agent, the one file that sudo may run")
    if draft.found.has_agent_settings:
        draft.keep(layout.agent_settings, "the agent's limits are yours to set")
        return
    limits = render_agent_conf(min_uid=DEFAULT_MIN_UID, path=DEFAULT_PATH)
    draft.write(layout.agent_settings, limits.encode(), 0o644, "root", "whom no agent ever runs as")
