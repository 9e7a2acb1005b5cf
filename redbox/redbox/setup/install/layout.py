"""The paths of an installation's files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from redbox.agents.transports.sudo import AGENT_PATH

SERVICE_ACCOUNT = "redbox"

FileOwner = Literal["root", "service"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of one installation."""

    configuration: Path = Path("/etc/redbox")
    state: Path = Path("/var/lib/redbox")
    runtime: Path = Path("/run/redbox")
    log: Path = Path("/var/log/redbox")
    agent: Path = Path(AGENT_PATH)
    sudoers: Path = Path("/etc/sudoers.d/redbox")

    @classmethod
    def of_current_user(cls) -> Self:
        """A personal installation, without an administrator."""
        home = Path.home()
        return cls.personal(home, Path(os.environ.get("XDG_RUNTIME_DIR") or home / ".local/state"))

    @classmethod
    def personal(cls, home: Path, runtime: Path) -> Self:
        state = home / ".local/state/redbox"
        return cls(home / ".config/redbox", state, runtime / "redbox", state)

    @property
    def agent_settings(self) -> Path:
        return self.configuration / "agent.conf"

    @property
    def settings(self) -> Path:
        return self.configuration / "redbox.yaml"

    @property
    def authority_certificate(self) -> Path:
        return self.configuration / "tls/ca.crt"

    @property
    def authority_key(self) -> Path:
        return self.configuration / "tls/ca.key"

    @property
    def certificate(self) -> Path:
        return self.configuration / "tls/server.crt"

    @property
    def key(self) -> Path:
        return self.configuration / "tls/server.key"

    @property
    def mark_secret(self) -> Path:
        return self.state / "mark.secret"

    def cluster_keys(self, cluster: str) -> Path:
        return self.configuration / f"{cluster}.jwks.json"
