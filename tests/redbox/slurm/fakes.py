"""Agents that answer as a test says, for faults that Slurm cannot be made to have."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from typing import Any

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError, SystemCallFailed
from redbox.agents.pool import AgentPool, AgentRole
from redbox.agents.protocol.answers import (
    CommandResult,
    FileAttributes,
    FileStatus,
    GlobMatch,
    GlobResult,
    Hello,
    RecordedCommand,
    RecordedCommandState,
)
from redbox.core.clock import SystemClock
from redbox.core.domain import UnixUser
from tests.redbox.slurm.captured import output

ALICE, BOB, REDBOX = UnixUser("alice", 2001), UnixUser("bob", 2002), UnixUser("redbox", 999)
NOW = datetime(2026, 11, 21, tzinfo=UTC)
HELLO = Hello(2, 2001, "/home/alice", 4711, "boot", "1")
FACTS = FileAttributes("directory", 0, 1, 1, 0, 0o755, 2001)
Answer = Callable[[list[str]], CommandResult] | AgentError | CommandResult


def done(stdout: str = "", stderr: str = "", code: int = 0) -> CommandResult:
    return CommandResult(code, stdout.encode(), stderr.encode(), 0.01)


def late() -> CommandResult:
    return CommandResult(-9, b"", b"", 15.0, timed_out=True)


def queue(*records: dict[str, str]) -> Callable[[list[str]], CommandResult]:
    """An squeue that shows these jobs, parted as it was asked to."""

    def answer(argv: list[str]) -> CommandResult:
        asked = [word.partition(":")[::2] for word in argv_option(argv, "--Format").split(",")]
        lines = ("".join(record[name] + end for name, end in asked) for record in records)
        return done("".join(line + "\n" for line in lines))

    return answer


def accounted(*rows: dict[str, str]) -> Callable[[list[str]], CommandResult]:
    """A sacct that shows these rows, parted as it was asked to."""

    def answer(argv: list[str]) -> CommandResult:
        asked = [word.partition("%-")[::2] for word in argv_option(argv, "--format").split(",")]
        if "--parsable2" in argv:
            return done("".join("|".join(row.get(name, "") for name, _ in asked) + "\n" for row in rows))
        records = (
            b"".join(in_column(row.get(name, ""), int(width)) for name, width in asked) + b"\n"
            for row in rows
        )
        return CommandResult(0, b"".join(records), b"", 0.01)

    return answer


def in_column(text: str, width: int) -> bytes:
    value = text.encode()
    return (value[: width - 1] + b"+" if len(value) > width else value.ljust(width)) + b" "


def argv_option(argv: Sequence[str], name: str) -> str:
    return next(word.partition("=")[2] for word in argv if word.startswith(f"{name}="))


CONFIG = done(output("24.11", "config.txt"))
DEFAULTS: dict[str, Answer] = {
    "/usr/bin/env": done("HOME=/home/alice\0PATH=/usr/bin:/bin\0"),
    "scontrol show config": CONFIG,
    "scontrol show federation": done(),
    "sacctmgr": done(output("24.11", "sacctmgr-config.txt")),
    "sacct --helpformat": done(output("24.11", "sacct-fields.txt")),
    "ps": done(),
}


class SkippingClock(SystemClock):
    """One day's date; it does not sleep, and is `ahead` by as many seconds as a test says."""

    ahead = 0.0

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.ahead += seconds


@dataclass
class ScriptedAgents(AgentPool):
    """All users' agents. `answers` are by the words that a command begins with; a list is used up in turn."""

    answers: dict[str, Answer | list[Answer]] = field(default_factory=dict)
    calls: list[tuple[str, list[str], bytes, dict[str, str]]] = field(default_factory=list)
    deadlines: list[float] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    kept: dict[str, RecordedCommand] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)  # of files that were unpacked
    directories: list[tuple[str, int]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    places: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """By directory: its device, file system and real path."""
    listings: list[tuple[str, int]] = field(default_factory=list)
    no_agent: AgentError | None = None
    no_directory: AgentError | None = None
    listed_only: bool = False  # a network file system has the names of the files cached as missing
    hello: Hello = HELLO

    async def agent(self, user: UnixUser, role: AgentRole = "commands") -> ScriptedAgent:
        if self.no_agent is not None:
            raise self.no_agent
        return ScriptedAgent(self, user, role)

    def answer(self, argv: list[str]) -> Answer:
        line = " ".join(argv)
        for begin, answer in sorted({**DEFAULTS, **self.answers}.items(), key=lambda item: -len(item[0])):
            if line.startswith(begin):
                return answer.pop(0) if isinstance(answer, list) else answer
        raise AssertionError(f"no answer for {line}")

    def called(self, begin: str) -> list[list[str]]:
        return [argv for _, argv, _, _ in self.calls if " ".join(argv).startswith(begin)]


@dataclass
class ScriptedAgent(AgentClient):
    agents: ScriptedAgents
    user: UnixUser
    role: str

    def __post_init__(self) -> None:
        self.hello = self.agents.hello

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        keep: str | None = None,
        replaces: str | None = None,
        output_limit: int = 0,
        **_: Any,
    ) -> CommandResult:
        earlier = None if keep is None else self.agents.kept.get(keep)
        if keep is not None and earlier is not None and (replaces is None or earlier.outcome_id != replaces):
            raise SystemCallFailed(17, "this kept command was begun before", keep)
        self.agents.deadlines.append(deadline)
        self.agents.limits.append(output_limit)
        self.agents.calls.append((self.user.name, list(argv), stdin, dict(env or {})))
        asked = list(argv)
        if env and "SQUEUE_FORMAT2" in env:
            asked.append(f"--Format={env['SQUEUE_FORMAT2']}")
        answer = self.agents.answer(asked)
        if isinstance(answer, AgentError):
            if keep is not None:
                self.agents.kept[keep] = RecordedCommand(RecordedCommandState.RUNNING)
            raise answer
        completed = answer if isinstance(answer, CommandResult) else answer(asked)
        if keep is not None:
            outcome_id = f"outcome {len(self.agents.calls)}"
            self.agents.kept[keep] = RecordedCommand(RecordedCommandState.ENDED, completed, outcome_id)
        return completed

    async def recall(self, keep: str) -> RecordedCommand:
        return self.agents.kept.get(keep, RecordedCommand(RecordedCommandState.NOT_RECORDED))

    async def make_directory(self, path: str, *, mode: int = 0o777) -> None:
        assert self.role == "files"
        if self.agents.no_directory is not None:
            raise self.agents.no_directory
        self.agents.directories.append((path, mode))

    async def write(
        self, path: str, chunks: AsyncIterable[bytes] | bytes, *, mode: int = 0o644, **_: Any
    ) -> FileAttributes:
        assert mode == 0o600
        assert isinstance(chunks, bytes)
        self.agents.files[path] = chunks
        return FACTS

    async def unpack(self, directory: str, archive: bytes, *, wanted: str, **_: Any) -> bool:
        assert self.role == "files"
        if self.agents.no_directory is not None:
            raise self.agents.no_directory
        self.agents.directories.append((directory, 0o700))
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                path = f"{directory}/{member.name}"
                content = tar.extractfile(member)
                assert content is not None
                self.agents.files[path] = content.read()
                self.agents.modes[path] = member.mode
        return wanted in self.agents.files

    async def glob(self, directory: str, patterns: Sequence[str], *, limit: int = 10) -> GlobResult:
        assert self.role == "files"
        if self.agents.no_directory is not None:
            raise self.agents.no_directory
        self.agents.listings.append((directory, len(patterns)))
        names = (path.rpartition("/") for path in self.agents.files)
        found = [name for parent, _, name in names if parent == directory]
        matches = [name for name in found if any(fnmatch(name, pattern) for pattern in patterns)]
        status = replace(FACTS, kind="listed") if self.agents.listed_only else FACTS
        matched = tuple(GlobMatch(**asdict(status), path=name) for name in matches[:limit])
        return GlobResult(matched, truncated=len(matches) > limit)

    async def stat(self, path: str, *, deadline: float = 10.0) -> FileStatus:
        del deadline
        device, file_system, real_path = self.agents.places.get(path, (1, "ext4", path))
        return FileStatus(**{**asdict(FACTS), "device": device}, file_system=file_system, real_path=real_path)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        assert recursive
        self.agents.removed.append(path)
