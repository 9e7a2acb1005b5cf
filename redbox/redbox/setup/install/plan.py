"""`redbox init`: decides which files to write, from those that exist. Pure; `apply` writes them.

Run again, it renews the server's certificate and adds missing files. It never replaces the settings, the mark
secret (it signs the marks of jobs that run), the CA (clusters hold its certificate), nor a certificate that
its own CA did not sign. So audience and CA stay, and the SlurmCluster in Kubernetes remains valid.
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
from redbox.core.domain import Role
from redbox.core.yaml_document import parse_document
from redbox.jobs.record.marks import SECRET_BYTES
from redbox.server.certificates import CertificateAndKey, facts_of, is_issued_by, issue_server, make_authority
from redbox.settings import RedboxSettings, settings_from
from redbox.setup.install.example_settings import render_settings
from redbox.setup.install.layout import FileOwner, Layout
from redbox.setup.install.manifest import SlurmClusterManifest

RENEW_AUTHORITY_WITHIN = timedelta(days=398)
ISSUER = "https://kubernetes.default.svc.cluster.local"
OPERATOR_NAMESPACE = "redbox-system"
OPERATOR_ACCOUNT, RESOURCED_ACCOUNT = "redbox-operator", "redbox-resourced"


@dataclass(frozen=True, slots=True)
class InitOptions:
    """The options of `redbox init`."""

    name: str
    cluster: str
    names: tuple[str, ...]  # of the certificate; the first one is the endpoint
    addresses: tuple[str, ...] = ()
    port: int = 8443
    issuer: str = ISSUER
    operator_namespace: str = OPERATOR_NAMESPACE
    transport: Literal["sudo", "self"] = "sudo"
    pods: bool = False  # whether pods run as jobs: resourced then gets the role volumes
    sessions: bool = False  # whether users may enter their running jobs
    packaged: bool = False  # whether the distribution's package manager owns the agent and the host's files


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """The files of an earlier `redbox init`."""

    settings: RedboxSettings | None = None
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
    owner: FileOwner


@dataclass(frozen=True, slots=True)
class InitPlan:
    """The files to write, a note for each, and the SlurmCluster for Kubernetes."""

    files: tuple[NewFile, ...]
    notes: tuple[str, ...]
    manifest: SlurmClusterManifest


def plan_init(options: InitOptions, existing: ExistingFiles, layout: Layout, now: datetime) -> InitPlan:
    """Raises DocumentError for options that would give settings with a flaw."""
    plan = _PlanBuilder(options, existing, layout, now)
    audience = _plan_settings(plan)
    trusted = _plan_tls(plan)
    _plan_mark_secret(plan)
    if options.transport == "sudo":
        _plan_agent(plan)
    host = (options.names or options.addresses)[0]
    port = existing.settings.listen.port if existing.settings else options.port
    endpoint = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    manifest = SlurmClusterManifest(options.name, endpoint, audience, trusted, pods=options.pods)
    return InitPlan(tuple(plan.files), tuple(plan.notes), manifest)


@dataclass
class _PlanBuilder:
    options: InitOptions
    existing: ExistingFiles
    layout: Layout
    now: datetime
    files: list[NewFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path, content: bytes, mode: int, owner: FileOwner, note: str) -> None:
        self.files.append(NewFile(path, content, mode, owner))
        self.notes.append(f"wrote {path}: {note}")

    def keep(self, path: Path, why: str) -> None:
        self.notes.append(f"kept {path}: {why}")


def _plan_settings(plan: _PlanBuilder) -> str:
    """Plan the settings, and return the audience; an existing audience stays."""
    options, path, settings = plan.options, plan.layout.settings, plan.existing.settings
    new_audience = f"{AUDIENCE_PREFIX}{options.name}/{secrets.token_hex(8)}"
    if settings is None:
        text = render_settings(first_settings(options, new_audience, plan.layout))
        settings_from(parse_document(text, f"{path} (not written)"))  # the options may be no names for them
        check = "redbox check --personal" if options.transport == "self" else "redbox check"
        plan.write(path, text.encode(), 0o644, "root", f"review it, then run {check}")
        return new_audience
    plan.keep(path, "redbox init never overwrites settings; remove the file to get a new one")
    if options.pods:
        _note_volumes(plan, settings)
    if options.sessions and not settings.exec.enabled:
        plan.notes.append(f"for sessions in running jobs set exec.enabled to true in {path}")
    audiences = {cluster.name: cluster.audience for cluster in settings.callers.clusters}
    if options.cluster in audiences:
        return audiences[options.cluster]
    audience = next(iter(audiences.values()), new_audience)
    plan.notes.append(
        f"add cluster {options.cluster} to callers.clusters in {path}, with audience {audience}"
    )
    return audience


def _note_volumes(plan: _PlanBuilder, settings: RedboxSettings) -> None:
    """Settings stay as they are, so the administrator adds what pods need."""
    mapping, cluster = settings.mapping, plan.options.cluster
    if mapping.file is None and any(
        rule.cluster == cluster and Role.VOLUMES in rule.roles for rule in mapping.rules
    ):
        return
    plan.notes.append(
        f"for claims of pods, redbox-resourced of cluster {cluster} needs the role volumes by the first rule "
        f"that matches it in {mapping.file or plan.layout.settings}; redbox check says whether it has it"
    )


def first_settings(options: InitOptions, audience: str, layout: Layout) -> Mapping[str, Any]:
    """The values that differ from the defaults, or that an administrator should review."""
    cluster = {
        "name": options.cluster,
        "issuer": options.issuer,
        "audience": audience,
        "jwks_file": layout.cluster_keys(options.cluster),
    }
    return {
        "name": options.name,
        "listen": {"port": options.port, "unix_socket": layout.runtime / "redbox.sock"},
        "tls": {"certificate_file": layout.certificate, "key_file": layout.key},
        "callers": {"clusters": [cluster], "tokens_file": layout.state / "tokens.json"},
        "mapping": {"rules": _rules_for_controllers(options)},
        "agents": {"transport": options.transport},
        "jobs": {"journal": layout.state, "mark_secret": layout.mark_secret},
        "audit": {"file": layout.log / "audit.log"},
        "exec": {"enabled": options.sessions},
    }


def _rules_for_controllers(options: InitOptions) -> list[Mapping[str, Any]]:
    """Both controllers watch all jobs; the operator alone requeues; resourced deletes folders of claims."""
    where = {"cluster": options.cluster, "namespaces": [options.operator_namespace]}
    roles = ["operator", "reader"]
    volumes = ["volumes"] if options.pods else []
    return [
        {**where, "service_accounts": [OPERATOR_ACCOUNT], "roles": [*roles, "requeue"]},
        {**where, "service_accounts": [RESOURCED_ACCOUNT], "roles": [*roles, *volumes]},
    ]


def _plan_tls(plan: _PlanBuilder) -> bytes:
    """Plan CA and certificate, and return what clusters should trust."""
    existing, layout = plan.existing, plan.layout
    if existing.server is not None and not _is_issued_by(existing.server, existing.authority):
        plan.keep(layout.certificate, "it is not signed by red-box's own CA")
        plan.notes.append("caBundle below is that certificate: replace it by the certificate of your CA")
        return existing.server.certificate
    authority = existing.authority or make_authority(plan.options.name, plan.now)
    if existing.authority is None:
        plan.write(layout.authority_certificate, authority.certificate, 0o644, "root", "the CA")
        plan.write(
            layout.authority_key, authority.key, 0o600, "root", "the CA's key; only redbox init needs it"
        )
    else:
        _note_expiry(plan, authority)
    _plan_certificate(plan, authority)
    return authority.certificate


def _is_issued_by(server: CertificateAndKey, authority: CertificateAndKey | None) -> bool:
    return authority is not None and is_issued_by(server.certificate, authority.certificate)


def _note_expiry(plan: _PlanBuilder, authority: CertificateAndKey) -> None:
    path, ends = plan.layout.authority_certificate, facts_of(authority.certificate).not_after
    plan.keep(path, f"the CA is valid until {ends:%Y-%m-%d}")
    if ends - plan.now < RENEW_AUTHORITY_WITHIN:
        plan.notes.append(
            f"the CA expires soon: remove {path.parent}, run redbox init again, "
            "and apply the new SlurmCluster in every cluster"
        )


def _plan_certificate(plan: _PlanBuilder, authority: CertificateAndKey) -> None:
    """Plan a new certificate for the given names and those of the old one."""
    before = facts_of(plan.existing.server.certificate) if plan.existing.server else None
    names = tuple(dict.fromkeys([*plan.options.names, *(before.names if before else ())]))
    addresses = tuple(dict.fromkeys([*plan.options.addresses, *(before.addresses if before else ())]))
    server = issue_server(authority, names, addresses, plan.now)
    ends = facts_of(server.certificate).not_after
    note = f"for {', '.join((*names, *addresses))} until {ends:%Y-%m-%d}; run redbox init again to renew it"
    chain = server.certificate + authority.certificate
    certificate, key = plan.layout.certificate, plan.layout.key
    if plan.existing.server is not None and plan.existing.settings is not None:
        tls = plan.existing.settings.tls  # where it was found, and where the server reads it
        certificate, key = tls.certificate_file, tls.key_file
    plan.write(certificate, chain, 0o644, "root", note)
    plan.write(key, server.key, 0o600, "service", "the certificate's key")


def _plan_mark_secret(plan: _PlanBuilder) -> None:
    """A link counts as the secret, and so does the settings' own path: its disk may not be mounted now."""
    settings = plan.existing.settings
    path = settings.jobs.mark_secret if settings else plan.layout.mark_secret
    if plan.existing.has_mark_secret:
        plan.keep(path, "it signs the marks of jobs that run")
        return
    if path != plan.layout.mark_secret:
        plan.notes.append(
            f"{path} is missing, the jobs.mark_secret of {plan.layout.settings}: restore it, or, if no job "
            f"of red-box runs, set it to {plan.layout.mark_secret} and run redbox init again"
        )
        return
    secret = secrets.token_hex(SECRET_BYTES) + "\n"
    note = "signs the marks on jobs; copy it to every standby, and nowhere else"
    plan.write(path, secret.encode(), 0o600, "service", note)


def _plan_agent(plan: _PlanBuilder) -> None:
    layout = plan.layout
    if plan.options.packaged:
        plan.keep(layout.agent, "it belongs to the package red-box")
    else:
        plan.write(layout.agent, agent_source(), 0o755, "root", "the agent, the only file that sudo may run")
    if plan.existing.has_agent_settings:
        plan.keep(layout.agent_settings, "the agent's limits are the administrator's")
        return
    limits = render_agent_conf(min_uid=DEFAULT_MIN_UID, path=DEFAULT_PATH)
    plan.write(
        layout.agent_settings, limits.encode(), 0o644, "root", "the lowest uid for agents, and their PATH"
    )
