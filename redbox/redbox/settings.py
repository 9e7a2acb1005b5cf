"""The settings: one file, /etc/redbox/redbox.yaml, checked as a whole when the server starts.

Each package defines its own section in its module `settings`, and `callers.mapping.rules` the section
`mapping`; this module joins them. Only the mapping rules change while the server runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from redbox.agents.settings import AgentsSettings
from redbox.callers.mapping.mapping import MappingRules
from redbox.callers.mapping.rules import MappingSettings
from redbox.callers.mapping.rules_file import ActiveRules, read_rules, refuse_unknown_clusters
from redbox.callers.settings import CallersSettings, ClusterName
from redbox.core.yaml_document import AbsolutePath, Document, Section, read_document, validate
from redbox.jobs.settings import JobsSettings
from redbox.logs.settings import LogSettings
from redbox.sessions.settings import ExecSettings
from redbox.slurm.settings import SlurmSettings
from redbox.volumes.settings import VolumesSettings

SETTINGS_FILE = Path("/etc/redbox/redbox.yaml")


class ListenSettings(Section):
    """Where callers reach red-box."""

    address: Annotated[str, Field(min_length=1, max_length=255)] = "0.0.0.0"  # noqa: S104 (pods call from elsewhere)
    """The address to listen on, always with TLS; "::" is IPv6 and IPv4."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8443
    """The port; 0: listen on the Unix socket only."""
    unix_socket: AbsolutePath | None = Path("/run/redbox/redbox.sock")
    """For users of this host, who act as themselves; null: no socket."""


class TlsSettings(Section):
    """The server's certificate: made by `redbox init`, or the site's own."""

    certificate_file: AbsolutePath = Path("/etc/redbox/tls/server.crt")
    """PEM, with the chain; read again when it changes, and on SIGHUP."""
    key_file: AbsolutePath = Path("/etc/redbox/tls/server.key")
    """PEM, readable by the account redbox alone."""


class LimitsSettings(Section):
    """What one request and one user may take."""

    body_bytes: Annotated[int, Field(ge=65_536)] = 8 * 1024 * 1024
    """The largest request; files that are staged in may be larger."""
    streams_per_user: Annotated[int, Field(ge=1)] = 2_000
    """Followed logs, watches and downloads of one user at once."""
    streams: Annotated[int, Field(ge=1)] = 20_000
    """The same, for all users together."""
    writes_per_second: Annotated[float, Field(gt=0)] = 20.0
    """Submits, deletions and other changes of one user, each by itself, and never fewer than
    jobs.submits_per_second; ten times that for an operator, in each namespace."""
    write_burst: Annotated[float, Field(ge=1)] = 1000.0
    """So many before writes_per_second counts, and never fewer than jobs.submit_burst."""


class AuditSettings(Section):
    """The audit log: who did what, as which user, with which outcome; one line each."""

    file: AbsolutePath | None = Path("/var/log/redbox/audit.log")
    """SIGHUP reopens it; null: the lines go to the ordinary log."""


class RedboxSettings(Section):
    """All settings of one red-box."""

    name: Annotated[ClusterName, Field(examples=["hpc1"])]
    """The name of this Slurm cluster in Kubernetes, that is of its SlurmCluster."""
    listen: ListenSettings = ListenSettings()
    tls: TlsSettings = TlsSettings()
    callers: CallersSettings = CallersSettings()
    mapping: MappingSettings = MappingSettings()
    agents: AgentsSettings = AgentsSettings()
    slurm: SlurmSettings = SlurmSettings()
    jobs: JobsSettings = JobsSettings()
    logs: LogSettings = LogSettings()
    volumes: VolumesSettings = VolumesSettings()
    exec: ExecSettings = ExecSettings()
    limits: LimitsSettings = LimitsSettings()
    audit: AuditSettings = AuditSettings()

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names of the Kubernetes clusters whose tokens are accepted."""
        return tuple(cluster.name for cluster in self.callers.clusters)

    @model_validator(mode="after")
    def _check_socket(self) -> Self:
        if self.agents.accounts_on_login_node and self.listen.unix_socket is not None:
            raise ValueError(
                "agents.ssh.accounts: login_node needs listen.unix_socket: null, because a user of this host "
                "would be taken for the user of the same uid there"
            )
        return self


def load_settings(path: Path = SETTINGS_FILE) -> RedboxSettings:
    """Read the settings; raises DocumentError with every error and its line."""
    return settings_from(read_document(path))


def settings_from(document: Document) -> RedboxSettings:
    settings = validate(RedboxSettings, document)
    refuse_unknown_clusters(settings.mapping.rules, settings.clusters, document, ("mapping", "rules"))
    return settings


def rules_in_force(settings: RedboxSettings, path: Path = SETTINGS_FILE) -> ActiveRules:
    """Read the mapping rules, from their own file or from the settings file; raises DocumentError."""
    return ActiveRules(_RulesReader(path, settings.mapping.file))


@dataclass
class _RulesReader:
    """Reads the settings and the file that `mapping.file` names, which may change between two reads."""

    path: Path
    rules_file: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,) if self.rules_file is None else (self.path, self.rules_file)

    def read(self) -> MappingRules:
        settings = load_settings(self.path)
        mapping = settings.mapping
        self.rules_file = mapping.file
        rules = mapping.rules if mapping.file is None else read_rules(mapping.file, settings.clusters)
        return MappingRules(rules, mapping.min_uid, mapping.users_group)
