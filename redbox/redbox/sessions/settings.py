"""Section `exec` of the settings: whether and how users get into their running jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from redbox.core.domain import Role
from redbox.core.durations import Duration
from redbox.core.yaml_document import Section

SessionRole = Literal[Role.SUBMIT, Role.EXEC]


class ExecSettings(Section):
    """Commands, shells and forwarded ports in running jobs, as their users: kubectl exec, redbox exec."""

    enabled: bool = False
    """false: every such request is refused, on every way."""
    max_sessions_per_user: Annotated[int, Field(ge=1, le=1000)] = 100
    """Sessions and forwards of one Unix user at once; a SlurmJob has one forward for all its ports."""
    max_connections_per_user: Annotated[int, Field(ge=1, le=4000)] = 256
    """Connections of one Unix user at once in all forwards, without probes; each may hold about 1 MiB."""
    sessions_per_second: Annotated[float, Field(gt=0)] = 50.0
    """Per caller: sessions and forwards that begin, and ports that a forward uses for the first time."""
    session_burst: Annotated[float, Field(ge=1)] = 500.0
    """Per caller: sessions at once before sessions_per_second counts."""
    idle_limit: Duration = Duration(3600)
    """A session without a byte in either direction ends after so long; 0: never."""
    roles: Annotated[frozenset[SessionRole], Field(min_length=1)] = frozenset({Role.SUBMIT})
    """submit: for jobs of one's own; exec: only for callers whose rule has this role, too."""
    audit_arguments: bool = True
    """Whether the audit has a command's arguments; false: only its program."""
