"""The settings: one file, /etc/redbox/redbox.yaml, checked as a whole when the server starts.

Each part defines its own section (`callers.settings`, `callers.rules`, `agents.settings`, `jobs.settings`,
`logs.service`); here they become one tree. What changes while the server runs are the mapping rules only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from redbox.agents.settings import PoolSettings
from redbox.callers.mapping.mapping import MappingRules
from redbox.callers.mapping.rules import MappingSettings
from redbox.callers.mapping.rules_file import ActiveRules, read_rules, refuse_unknown_clusters
from redbox.callers.settings import AbsolutePath, CallersSettings, ClusterName
from redbox.core.yaml_document import Section, read_document, validate
from redbox.jobs.settings import JobsSettings
from redbox.local.settings import LocalSettings
from redbox.logs.service import LogSettings
from redbox.slurm.settings import SlurmSettings

SETTINGS_FILE = Path("/etc/redbox/redbox.yaml")
STATE_DIRECTORY = Path("/var/lib/redbox")


class ListenSettings(Section):
    """Where callers reach red-box."""

    address: Annotated[str, Field(min_length=1, max_length=255)] = "0.0.0.0"  # noqa: S104 (pods call from elsewhere)
    """The address to listen at, always with TLS; "::" is IPv6 and IPv4."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8443
    """Its port; 0 listens at no port, but at the socket only."""
    unix_socket: AbsolutePath | None = Path("/run/redbox/redbox.sock")
    """For users of this host, who are who they are there; null for none."""


class TlsSettings(Section):
    """The certificate that red-box shows: made by `redbox init`, or the site's own."""

    certificate_file: AbsolutePath = Path("/etc/redbox/tls/server.crt")
    """PEM, with the chain; read again on SIGHUP."""
    key_file: AbsolutePath = Path("/etc/redbox/tls/server.key")
    """PEM, readable by the account redbox alone."""


class SshSettings(Section):
    """The login node that agents are started on, where transport is ssh."""

    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]*$", examples=["login.example"])]
    """Its name or address."""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    """Its sshd's port."""
    known_hosts: AbsolutePath = Path("/etc/redbox/known_hosts")
    """Its host key, or the CA of host keys (@cert-authority), in the format of ssh."""
    ca_key_file: Annotated[AbsolutePath | None, Field(examples=["/etc/redbox/ssh-ca.key"])] = None
    """Red-box's own SSH CA: users log in with certificates of five minutes."""
    addresses: tuple[str, ...] = ()
    """With ca_key_file: the addresses that the login node sees red-box under."""
    key_directory: AbsolutePath | None = None
    """Or a directory with one private key for each user, named like the user."""
    observer: Annotated[str | None, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")] = None
    """The account that looks at Slurm's queue there; none where red-box itself runs on a login node."""

    @model_validator(mode="after")
    def _says_how_users_log_in(self) -> Self:
        if (self.ca_key_file is None) == (self.key_directory is None):
            raise ValueError("give exactly one of ca_key_file and key_directory")
        if (self.ca_key_file is not None) != bool(self.addresses):
            raise ValueError("addresses belong to ca_key_file, and it needs them")
        return self


class AgentsSettings(Section):
    """How red-box acts as its users."""

    transport: Literal["sudo", "ssh", "self"] = "sudo"
    """sudo: on this host; ssh: on a login node; self: for its own account only, a personal install."""
    ssh: SshSettings | None = None
    pool: PoolSettings = PoolSettings()

    @model_validator(mode="after")
    def _has_what_its_transport_needs(self) -> Self:
        if (self.transport == "ssh") != (self.ssh is not None):
            raise ValueError("the section ssh belongs to transport: ssh, and it needs one")
        return self


@dataclass(frozen=True, slots=True)
class JobsSection(JobsSettings):
    """Submits, polling, and how long what is known of jobs."""

    journal: Path = STATE_DIRECTORY  # its directory, on a local disk
    mark_secret: Path = STATE_DIRECTORY / "mark.secret"  # signs the marks on jobs; the same on a standby


class LimitsSettings(Section):
    """What one request and one user may take."""

    body_bytes: Annotated[int, Field(ge=65_536)] = 8 * 1024 * 1024
    """The largest request, but for files that are staged in."""
    streams_per_user: Annotated[int, Field(ge=1)] = 2_000
    """Followed logs, watches and downloads of one user at once."""
    streams: Annotated[int, Field(ge=1)] = 20_000
    """The same, for all users together."""


class AuditSettings(Section):
    """Who did what, as whom, with what outcome: one line each, in a file of its own."""

    file: AbsolutePath | None = Path("/var/log/redbox/audit.log")
    """Opened again on SIGHUP; null writes the lines to the ordinary log."""


class Settings(Section):
    """All settings of one red-box."""

    name: Annotated[ClusterName, Field(examples=["hpc1"])]
    """What Kubernetes calls this Slurm cluster: the name of its SlurmCluster."""
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    callers: CallersSettings = CallersSettings()
    mapping: MappingSettings = MappingSettings()
    workload_manager: Literal["slurm", "local"] = "slurm"
    """local runs jobs as processes of this host: for a laptop."""
    agents: AgentsSettings = AgentsSettings()
    slurm: SlurmSettings = SlurmSettings()
    local: LocalSettings = LocalSettings()
    jobs: JobsSection = JobsSection()
    logs: LogSettings = LogSettings()
    limits: LimitsSettings = LimitsSettings()
    audit: AuditSettings = AuditSettings()

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names of the Kubernetes clusters whose tokens are accepted."""
        return tuple(cluster.name for cluster in self.callers.clusters)


def load_settings(path: Path = SETTINGS_FILE) -> Settings:
    """Read the settings; raises DocumentError with every flaw and its line."""
    document = read_document(path)
    settings = validate(Settings, document)
    refuse_unknown_clusters(settings.mapping.rules, settings.clusters, document, ("mapping", "rules"))
    return settings


def rules_in_force(settings: Settings, path: Path = SETTINGS_FILE) -> ActiveRules:
    """Read the mapping rules, from their own file or from the settings file; raises DocumentError."""
    return ActiveRules(_RulesOfSettings(path, settings.mapping.file))


@dataclass
class _RulesOfSettings:
    """The rules that the settings have, or that are in the file that they name: each time anew."""

    path: Path
    named: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,) if self.named is None else (self.path, self.named)

    def read(self) -> MappingRules:
        settings = load_settings(self.path)
        mapping = settings.mapping
        self.named = mapping.file
        rules = mapping.rules if self.named is None else read_rules(self.named, settings.clusters)
        return MappingRules(rules, mapping.min_uid, mapping.users_group)
