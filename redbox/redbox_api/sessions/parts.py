"""Sessions and forwards on the wire: protocols, channels, the first message, and the status at the end."""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from redbox_api.pod_parts import EphemeralProgram

EXIT_CODE = "ExitCode"
NON_ZERO = "NonZeroExitCode"
MAX_FIRST_MESSAGE = 2 * 1024 * 1024
MAX_MESSAGE = 1024 * 1024
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
NODE_NAME = r"^[A-Za-z0-9]([-A-Za-z0-9._]{0,251}[A-Za-z0-9])?$"


class SessionChannel(IntEnum):
    """The first byte of a binary message of a session."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4
    CLOSE = 255


class PortChannel(IntEnum):
    """The first byte of a binary message of a forward; the number of its connection follows."""

    TO_JOB = 0
    FROM_JOB = 1
    STATUS = 3
    OPEN = 6
    CREDIT = 7
    CLOSE = 255


NUMBER = struct.Struct(">I")
"""Of a connection, which its client chooses; 0 is the forward as a whole. Credit is written likewise."""


def port_message(channel: PortChannel, number: int, data: bytes = b"") -> bytes:
    return bytes((channel,)) + NUMBER.pack(number) + data


def read_port_message(message: bytes) -> tuple[int, int, bytes]:
    """Channel, connection and content; ValueError for what is too short."""
    try:
        (number,) = NUMBER.unpack_from(message, 1)
    except struct.error:
        raise ValueError("a message without the number of its connection") from None
    return message[0], number, message[1 + NUMBER.size :]


def read_credit(data: bytes) -> int:
    """Of a message of channel CREDIT; ValueError for anything else."""
    if len(data) != NUMBER.size:
        raise ValueError(f"credit of {len(data)} bytes")
    granted: int = NUMBER.unpack(data)[0]
    return granted


def _without_nul(word: str) -> str:
    if "\0" in word:
        raise ValueError("a command cannot contain the byte 0")
    return word


class TerminalSize(BaseModel):
    """Of a terminal, in characters."""

    model_config = ConfigDict(extra="forbid")

    columns: Annotated[int, Field(ge=1, le=65_535)] = 80
    rows: Annotated[int, Field(ge=1, le=65_535)] = 24


class ExecRequest(BaseModel):
    """The first message of a session, as text; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid")

    command: Annotated[
        tuple[Annotated[str, AfterValidator(_without_nul)], ...], Field(max_length=65_536, fail_fast=True)
    ] = ()
    """The program and its arguments; no shell reads them. None with `attach`."""
    attach: bool = False
    """Instead of a command: the main process of the `container`, which a pod gave stdin or a terminal."""
    ephemeral: EphemeralProgram | None = None
    """Instead of a command: a container that the runner of a pod is to begin beside the others.

    The session ends once it has begun, and the pod's report shows it. One of the same name is begun once.
    """
    tty: bool = False
    """Whether it has a terminal; then its stderr is in its stdout."""
    stdin: bool = True
    """Whether it gets input."""
    container: Annotated[str | None, Field(pattern=DNS_LABEL)] = None
    """Of a pod: its container. A container job is entered without it."""
    node: Annotated[str | None, Field(pattern=NODE_NAME)] = None
    """One of the job's nodes; by default the first, where its script runs."""
    task: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    """Of a job array: which task."""
    size: TerminalSize | None = None
    """Of the terminal at its start."""
    term: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$")] = None
    """TERM of the terminal; by default xterm."""

    @model_validator(mode="after")
    def _has_one_purpose(self) -> ExecRequest:
        places = (self.container, self.node, self.task)
        if self.ephemeral is not None and (self.command or self.attach or places != (None, None, None)):
            raise ValueError("ephemeral goes without command, attach, container, node and task")
        if self.attach and (self.command or self.container is None or self.node or self.task is not None):
            raise ValueError("attach goes with container, and without command, node and task")
        if not (self.attach or self.command or self.ephemeral):
            raise ValueError("command: name a program, or attach to a container, or begin an ephemeral one")
        return self


class PortRequest(BaseModel):
    """What a message on channel OPEN has: where a new connection leads; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    port: Annotated[int, Field(ge=1, le=65_535)]
    """On the node."""
    node: Annotated[str | None, Field(pattern=NODE_NAME)] = None
    """One of the job's nodes; by default the first, where its script runs."""
    probe: bool = False
    """Only whether the port accepts a connection: the status says so at once."""


class ResizeMessage(BaseModel):
    """The payload of a message on channel RESIZE, as Kubernetes writes it."""

    model_config = ConfigDict(extra="ignore")

    columns: Annotated[int, Field(alias="Width", ge=1, le=65_535)]
    rows: Annotated[int, Field(alias="Height", ge=1, le=65_535)]


class SessionStatus(BaseModel):
    """The one message on channel ERROR: a Kubernetes Status, of which nothing is lost."""

    model_config = ConfigDict(extra="allow", frozen=True)

    status: Literal["Success", "Failure"]
    reason: str = ""
    message: str = ""
    details: dict[str, Any] = Field(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """As it is written."""
        return {"metadata": {}} | self.model_dump(exclude_defaults=True)

    @property
    def why(self) -> str:
        """Why it failed; empty after a success."""
        return "" if self.status == "Success" else self.message or self.reason or "no reason was given"

    @property
    def exit_code(self) -> int | None:
        """The command's; None where another reason ended the session."""
        if self.status == "Success":
            return 0
        causes = self.details.get("causes")
        for cause in causes if isinstance(causes, list) else []:
            if isinstance(cause, dict) and cause.get("reason") == EXIT_CODE:
                text = str(cause.get("message", ""))
                return int(text) if text.isascii() and text.isdigit() and len(text) <= len("255") else None
        return None


def success_status() -> bytes:
    return _encoded({"status": "Success"})


def exit_status(code: int, message: str = "") -> bytes:
    """Of a command that ended by itself."""
    if code == 0:
        return success_status()
    text = message or f"command terminated with exit code {code}"
    causes = [{"reason": EXIT_CODE, "message": str(code)}]
    return _encoded({"status": "Failure", "reason": NON_ZERO, "message": text, "details": {"causes": causes}})


def failure_status(reason: str, message: str) -> bytes:
    return _encoded({"status": "Failure", "reason": reason, "message": message})


def _encoded(document: dict[str, Any]) -> bytes:
    whole = {"kind": "Status", "apiVersion": "v1", "metadata": {}, **document}
    return json.dumps(whole, separators=(",", ":")).encode()
