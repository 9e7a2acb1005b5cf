"""What red-box and its clients say on the WebSocket of a session or of a connection to a port. No I/O.

Each binary message begins with one byte, its channel, as in Kubernetes' `v5.channel.k8s.io`. The first
message of a session is JSON, with the command: no URL has it. The last one has a Status of Kubernetes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self

from redbox_api.errors import FOREIGN, Unreachable

EXEC_PROTOCOL = "v1.exec.redbox.dev"
PORTS_PROTOCOL = "v1.ports.redbox.dev"


class Channel(IntEnum):
    """The first byte of a message. Of a port, STDIN has the bytes to the job and STDOUT those from it."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    STATUS = 3
    RESIZE = 4
    CLOSE = 255


OUTPUTS = (Channel.STDOUT, Channel.STDERR)


@dataclass(frozen=True)
class TerminalSize:
    """Of the client's window."""

    columns: int
    rows: int


@dataclass(frozen=True)
class SessionCommand:
    """What to run in the job, and where."""

    command: Sequence[str]
    tty: bool = False
    stdin: bool = False
    container: str | None = None
    """Of a pod."""
    node: str | None = None
    task: int | None = None
    size: TerminalSize | None = None

    def as_json(self) -> str:
        size = self.size and {"columns": self.size.columns, "rows": self.size.rows}
        given = {
            "command": list(self.command),
            "tty": self.tty,
            "stdin": self.stdin,
            "container": self.container,
            "node": self.node,
            "task": self.task,
            "size": size,
        }
        return json.dumps(given)


@dataclass(frozen=True, slots=True)
class SessionOutput:
    """A piece of stdout or stderr, or the end of one of them."""

    channel: Channel
    data: bytes
    is_last: bool = False


@dataclass(frozen=True)
class SessionStatus:
    """How a session or a connection ended: a Status of Kubernetes."""

    document: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, text: bytes) -> Self:
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict) or document.get("status") not in {"Success", "Failure"}:
            raise Unreachable(f"{FOREIGN}: the end of the session is not a Status")
        return cls(document)

    @property
    def has_failed(self) -> bool:
        return bool(self.document["status"] != "Success")

    @property
    def message(self) -> str:
        return str(self.document.get("message") or self.document.get("reason") or "no reason was given")
