"""What agents answer, checked: each value is of its type and within its bounds, or the peer is no agent."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal, cast

from redbox.agents.errors import AgentError, AgentUnavailable, FrameError, RequestFailed, SystemCallFailed
from redbox.agents.protocol.frames import AgentFrame, FrameKind

FileKind = Literal["file", "directory", "symlink", "null", "other"]
FILE_KINDS = frozenset({"file", "directory", "symlink", "null", "other"})
MAX_INTEGER = 2**64
MAX_WORDS = 4096
MAX_FIELDS = 16  # in one header; a match has nine


@dataclass(frozen=True, slots=True)
class Hello:
    """Who an agent says it is."""

    protocol: int
    uid: int
    user: str
    home: str
    host: str
    pid: int
    python: str


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended; `code` is negative for a signal."""

    code: int
    stdout: bytes
    stderr: bytes
    took_s: float
    timed_out: bool = False
    truncated: bool = False  # it was ended because it wrote too much


class RecordedCommandState(StrEnum):
    """What became of a kept command."""

    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"  # it was begun, runs no longer, and nobody saw its end
    UNHEARD = "unheard"  # never begun on this host, or longer than a day ago


@dataclass(frozen=True, slots=True)
class RecordedCommand:
    """The answer to `recall`; `completed` is there when it ended.

    `outcome_id` names the outcome: a command that is run again is run in place of just that one. Agents of
    older releases give none, and run nothing kept again.
    """

    state: RecordedCommandState
    completed: CommandResult | None = None
    outcome_id: str | None = None


@dataclass(frozen=True, slots=True)
class FileAttributes:
    """What the kernel says of a file. "null" is /dev/null."""

    kind: FileKind
    size: int
    device: int
    inode: int
    modified_ns: int
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class FileStatus(FileAttributes):
    """Facts, and the type of the file system that it is on; "" where the host does not show it."""

    file_system: str = ""


@dataclass(frozen=True, slots=True)
class GlobMatch(FileAttributes):
    """A path that a glob found, relative to its directory."""

    path: str = ""


@dataclass(frozen=True, slots=True)
class GlobResult:
    """What a glob found; `truncated` when there was more than the limit."""

    found: tuple[GlobMatch, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class OmittedFile:
    """A path that is not, or not as it was, in a tar, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Bytes of a file and the facts of the file that they were read from.

    `same` is False when it was not the file that was expected: then nothing was read. `tail` is the hash by
    which the place after `data` is known again. `open_s` says how long ago the file was opened.
    """

    data: bytes
    offset: int
    same: bool
    tail: str
    open_s: float
    facts: FileAttributes

    @property
    def next_offset(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class ReadPrecondition:
    """The file that was being read, and the hash of the 4 KiB before the offset ("": do not compare)."""

    device: int
    inode: int
    tail: str = ""


def check_header_size(frame: AgentFrame) -> None:
    """Raise FrameError for a header that no agent sends: in memory it would be many times what credit paid.

    An agent's headers are a few plain values. Of data, all that is said beside the bytes is the output that
    they are of, by agents of every release.
    """
    if frame.kind is FrameKind.DATA and not frame.header.keys() <= {"fd"}:
        raise FrameError("data with more than its output's number")
    if len(frame.header) > MAX_FIELDS or any(isinstance(fact, dict | list) for fact in frame.header.values()):
        raise FrameError("a header with more than a few plain values")


def read_integer(header: Mapping[str, Any], name: str, *, at_least: int = 0) -> int:
    value = header.get(name)
    if type(value) is not int or not at_least <= value <= MAX_INTEGER:
        raise FrameError(f"{name} is no number from {at_least}")
    return value


def read_seconds(header: Mapping[str, Any], name: str) -> float:
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_INTEGER:
        raise FrameError(f"{name} is no duration")
    return float(value)


def read_text(header: Mapping[str, Any], name: str, *, longest: int = MAX_WORDS) -> str:
    value = header.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise FrameError(f"{name} is no text of up to {longest} characters")
    return value


def read_flag(header: Mapping[str, Any], name: str) -> bool:
    value = header.get(name)
    if not isinstance(value, bool):
        raise FrameError(f"{name} is neither true nor false")
    return value


def parse_hello(frame: AgentFrame) -> Hello:
    if frame.kind is not FrameKind.EVENT or frame.request != 0:
        raise FrameError("the first frame is no hello")
    numbers = {name: read_integer(frame.header, name) for name in ("protocol", "uid", "pid")}
    texts = {name: read_text(frame.header, name) for name in ("user", "home", "host", "python")}
    return Hello(
        protocol=numbers["protocol"],
        uid=numbers["uid"],
        user=texts["user"],
        home=texts["home"],
        host=texts["host"],
        pid=numbers["pid"],
        python=texts["python"],
    )


def parse_failure(header: Mapping[str, Any]) -> AgentError:
    words = read_text(header, "message", longest=256 * 1024)[:MAX_WORDS]
    match read_text(header, "kind"):
        case "system":
            return SystemCallFailed(
                read_integer(header, "errno"), words, read_text(header, "path", longest=256 * 1024)
            )
        case "busy":
            return AgentUnavailable(f"the user's agent is busy: {words}", retry_after=1.0)
        case _:
            return RequestFailed(f"the agent could not do it: {words}")


def read_base64(header: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(read_text(header, name, longest=256 * 1024), validate=True)
    except binascii.Error:
        raise FrameError(f"{name} is no base64") from None


def read_code(header: Mapping[str, Any]) -> int:
    value = header.get("code")
    if type(value) is not int or not -255 <= value <= 255:  # noqa: PLR2004 # what the kernel can say
        raise FrameError("code is no exit status")
    return value


def read_command_result(header: Mapping[str, Any]) -> CommandResult:
    """Return the outcome of a kept command, which is in one answer."""
    return CommandResult(
        code=read_code(header),
        stdout=read_base64(header, "stdout"),
        stderr=read_base64(header, "stderr"),
        took_s=read_seconds(header, "took_s"),
        timed_out=read_flag(header, "timed_out"),
    )


def read_recorded_command(header: Mapping[str, Any]) -> RecordedCommand:
    try:
        state = RecordedCommandState(read_text(header, "state"))
    except ValueError:
        raise FrameError("a kept command in no known state") from None
    if state is not RecordedCommandState.ENDED:
        return RecordedCommand(state)
    outcome_id = read_text(header, "outcome_id", longest=64) if "outcome_id" in header else None
    return RecordedCommand(state, read_command_result(header), outcome_id)


def read_attributes(header: Mapping[str, Any]) -> FileAttributes:
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in FILE_KINDS:
        raise FrameError("a file of no known kind")
    return FileAttributes(
        kind=cast("FileKind", kind),
        size=read_integer(header, "size"),
        device=read_integer(header, "device"),
        inode=read_integer(header, "inode"),
        modified_ns=read_integer(header, "modified_ns", at_least=-MAX_INTEGER),
        mode=read_integer(header, "mode"),
        uid=read_integer(header, "uid"),
        gid=read_integer(header, "gid"),
    )


def parse_status(header: Mapping[str, Any]) -> FileStatus:
    return FileStatus(**asdict(read_attributes(header)), file_system=read_text(header, "file_system"))


def parse_match(header: Mapping[str, Any]) -> GlobMatch:
    return GlobMatch(**asdict(read_attributes(header)), path=read_text(header, "path"))


def read_read_result(header: Mapping[str, Any], data: bytes) -> ReadResult:
    return ReadResult(
        data=data,
        offset=read_integer(header, "offset"),
        same=read_flag(header, "same"),
        tail=read_text(header, "tail"),
        open_s=read_seconds(header, "open_s"),
        facts=read_attributes(header),
    )


def parse_data(frame: AgentFrame) -> bytes:
    if frame.kind is not FrameKind.DATA:
        raise FrameError(f"{frame.kind.name} among data")
    return frame.payload


def parse_tar_part(frame: AgentFrame) -> bytes | OmittedFile:
    if frame.kind is FrameKind.DATA:
        return frame.payload
    return OmittedFile(read_text(frame.header, "path"), read_text(frame.header, "message"))
