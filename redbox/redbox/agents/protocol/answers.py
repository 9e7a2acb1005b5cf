"""Agents' answers, validated: a value of another type or out of bounds raises FrameError."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

from redbox.agents.errors import AgentError, AgentUnavailable, FrameError, RequestFailed, SystemCallFailed
from redbox.agents.protocol.frames import AgentFrame, FrameKind

FileKind = Literal["file", "directory", "symlink", "null", "other", "listed"]
FILE_KINDS = frozenset(get_args(FileKind))
MAX_INTEGER = 2**64
MAX_TEXT = 4096
MAX_BOOT_ID = 36
MAX_LONG_TEXT = 256 * 1024
MAX_FIELDS = 16  # of one header; a match has nine


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent's first frame: its identity and its host. `boot` and `start` make the pid unique."""

    protocol: int
    uid: int
    home: str
    pid: int
    boot: str
    start: str


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit of a command; `code` is negative for a signal."""

    code: int
    stdout: bytes
    stderr: bytes
    took_s: float
    timed_out: bool = False
    truncated: bool = False  # it was killed because its output exceeded the limit


class RecordedCommandState(StrEnum):
    """The state of a recorded command."""

    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # started and no longer running, without a recorded exit
    NOT_RECORDED = "not recorded"  # never started on this host, or more than a day ago


@dataclass(frozen=True, slots=True)
class RecordedCommand:
    """The answer to `recall`: a command whose state and outcome are recorded on its host.

    `outcome_id` identifies the outcome of an ended one, so that another run replaces exactly this one.
    """

    state: RecordedCommandState
    completed: CommandResult | None = None
    outcome_id: str | None = None


@dataclass(frozen=True, slots=True)
class FileAttributes:
    """The result of stat(2). The kind "null" is /dev/null."""

    kind: FileKind
    size: int
    device: int
    inode: int
    modified_ns: int
    mode: int
    uid: int


@dataclass(frozen=True, slots=True)
class FileStatus(FileAttributes):
    """Attributes, the type of the file system, and the path without links; "" where that is not known."""

    file_system: str = ""
    real_path: str = ""


@dataclass(frozen=True, slots=True)
class GlobMatch(FileAttributes):
    """A path that matches a glob, relative to the glob's directory.

    "listed": its directory has the name, and a network file system still has it cached as missing.
    """

    path: str = ""


@dataclass(frozen=True, slots=True)
class GlobResult:
    """The matches of a glob; `truncated` if there are more than the limit."""

    found: tuple[GlobMatch, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class OmittedFile:
    """A path that is missing from a tar or incomplete in it, and the reason."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Bytes of a file, and the attributes of the file that they were read from.

    `same` is False if the file does not meet the precondition: then nothing was read. `tail` is the hash for
    the precondition of a read after `data`.
    """

    data: bytes
    offset: int
    same: bool
    tail: str
    facts: FileAttributes


@dataclass(frozen=True, slots=True)
class ReadPrecondition:
    """The file of an earlier read, and the hash of the 4 KiB before the offset ("": do not compare)."""

    device: int
    inode: int
    tail: str = ""


def check_header_size(frame: AgentFrame) -> None:
    """Raise FrameError for a header that no agent sends: parsed, it would be many times its credit.

    An agent's headers are a few plain values. That of DATA has at most the number of the output.
    """
    if frame.kind is FrameKind.DATA and not frame.header.keys() <= {"fd"}:
        raise FrameError("a DATA header has more than the output's number")
    if len(frame.header) > MAX_FIELDS or any(
        isinstance(value, dict | list) for value in frame.header.values()
    ):
        raise FrameError(f"a header has more than {MAX_FIELDS} plain values")


def read_integer(
    header: Mapping[str, Any], name: str, *, at_least: int = 0, at_most: int = MAX_INTEGER
) -> int:
    value = header.get(name)
    if type(value) is not int or not at_least <= value <= at_most:
        raise FrameError(f"{name} is not an integer from {at_least} to {at_most}")
    return value


def read_seconds(header: Mapping[str, Any], name: str) -> float:
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_INTEGER:
        raise FrameError(f"{name} is not a duration")
    return float(value)


def read_text(header: Mapping[str, Any], name: str, *, longest: int = MAX_TEXT) -> str:
    value = header.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise FrameError(f"{name} is not a string of up to {longest} characters")
    return value


def read_flag(header: Mapping[str, Any], name: str) -> bool:
    value = header.get(name)
    if not isinstance(value, bool):
        raise FrameError(f"{name} is not a boolean")
    return value


def parse_hello(frame: AgentFrame) -> Hello:
    if frame.kind is not FrameKind.EVENT or frame.request != 0:
        raise FrameError("the first frame is not a hello")
    header = frame.header
    return Hello(
        protocol=read_integer(header, "protocol"),
        uid=read_integer(header, "uid"),
        home=read_text(header, "home"),
        pid=read_integer(header, "pid"),
        boot=read_text(header, "boot", longest=MAX_BOOT_ID),
        start=read_text(header, "start", longest=MAX_BOOT_ID),
    )


def parse_failure(header: Mapping[str, Any]) -> AgentError:
    message = read_text(header, "message", longest=MAX_LONG_TEXT)[:MAX_TEXT]
    match read_text(header, "kind"):
        case "system":
            return SystemCallFailed(
                read_integer(header, "errno"), message, read_text(header, "path", longest=MAX_LONG_TEXT)
            )
        case "busy":
            return AgentUnavailable(f"the user's agent is busy: {message}", retry_after=1.0)
        case _:
            return RequestFailed(f"the agent could not perform the request: {message}")


def read_base64(header: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(read_text(header, name, longest=MAX_LONG_TEXT), validate=True)
    except binascii.Error:
        raise FrameError(f"{name} is not base64") from None


def parse_exit(
    header: Mapping[str, Any], stdout: bytes, stderr: bytes, *, truncated: bool = False
) -> CommandResult:
    code = read_integer(header, "code", at_least=-255, at_most=255)  # the kernel's range
    timed_out = read_flag(header, "timed_out")
    return CommandResult(code, stdout, stderr, read_seconds(header, "took_s"), timed_out, truncated)


def parse_command_result(header: Mapping[str, Any]) -> CommandResult:
    return parse_exit(header, read_base64(header, "stdout"), read_base64(header, "stderr"))


def parse_recorded_command(header: Mapping[str, Any]) -> RecordedCommand:
    try:
        state = RecordedCommandState(read_text(header, "state"))
    except ValueError:
        raise FrameError("a recorded command in an unknown state") from None
    if state is not RecordedCommandState.ENDED:
        return RecordedCommand(state)
    return RecordedCommand(state, parse_command_result(header), read_text(header, "outcome_id", longest=64))


def parse_attributes(header: Mapping[str, Any]) -> FileAttributes:
    return FileAttributes(**_attributes(header))


def _attributes(header: Mapping[str, Any]) -> dict[str, Any]:
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in FILE_KINDS:
        raise FrameError("a file of an unknown kind")
    modified_ns = read_integer(header, "modified_ns", at_least=-MAX_INTEGER)
    numbers = {name: read_integer(header, name) for name in ("size", "device", "inode", "mode", "uid")}
    return {"kind": kind, "modified_ns": modified_ns, **numbers}


def parse_status(header: Mapping[str, Any]) -> FileStatus:
    real_path = read_text(header, "real_path")
    if real_path and not real_path.startswith("/"):
        raise FrameError("real_path is not absolute")
    file_system = read_text(header, "file_system")
    return FileStatus(**_attributes(header), file_system=file_system, real_path=real_path)


def parse_match(header: Mapping[str, Any]) -> GlobMatch:
    return GlobMatch(**_attributes(header), path=read_text(header, "path"))


def parse_read_result(header: Mapping[str, Any], data: bytes) -> ReadResult:
    return ReadResult(
        data=data,
        offset=read_integer(header, "offset"),
        same=read_flag(header, "same"),
        tail=read_text(header, "tail"),
        facts=parse_attributes(header),
    )


def parse_data(frame: AgentFrame) -> bytes:
    if frame.kind is not FrameKind.DATA:
        raise FrameError(f"unexpected {frame.kind.name} among DATA")
    return frame.payload


def parse_tar_part(frame: AgentFrame) -> bytes | OmittedFile:
    if frame.kind is FrameKind.DATA:
        return frame.payload
    return OmittedFile(read_text(frame.header, "path"), read_text(frame.header, "message"))
