"""Records of commands whose outcome must survive the server and the agent: submits.

A record is an append-only file of JSON lines in a 0700 directory of the user: the agent that began the
command, the process that it started as, its outcome. A later agent reads the outcome there. The user's
runtime directory is preferred, because it is fast and, like processes, local to the host. Over ssh the home
directory is: a name may have several hosts, which share homes, and the runtime directory goes with the user's
last login.

A record is removed when it is a day old, or for another run of its command, on behalf of a server that has
read the outcome and identifies it.
"""

import base64
import hashlib
import json
import os
import re
import stat
import threading
import time
from contextlib import suppress
from functools import lru_cache
from typing import Any, Callable, Dict, List, Optional, Tuple

HOME_FIRST = False
IDENTITY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}\Z")
RETAINED_S = 86400.0
REMOVE_EVERY_S = 3600.0  # going through a day's records takes longer than a submit
MAX_UNWRITTEN = 200
CLAIM = "~"  # suffix of the lock file for the removal of a record; no identity contains it


@lru_cache(maxsize=None)
def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def process_start(pid: int) -> str:
    """Return the start of a process of this user, in ticks since boot; with pid and boot id it is unique.

    Processes of other users are skipped: reading their stat may block on a hanging file server.
    """
    try:
        if os.stat("/proc/{}".format(pid)).st_uid != os.getuid():
            return ""
        with open("/proc/{}/stat".format(pid), "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return fields[19].decode() if fields[0] not in (b"Z", b"X") else ""


def describe_process(pid: int) -> Dict[str, Any]:
    return {"boot": boot_id(), "pid": pid, "start": process_start(pid)}


def is_alive(process: Dict[str, Any]) -> bool:
    start = process["start"]
    return bool(start) and process["boot"] == boot_id() and process_start(process["pid"]) == start


def state_directories(uid: int, home: str) -> List[str]:
    runtime, in_home = "/run/user/{}".format(uid), os.path.join(home, ".local", "state")
    return [in_home, runtime] if HOME_FIRST else [runtime, in_home]


class CommandRecord:
    """The record of one command under way."""

    def __init__(self, identity: str, descriptor: Optional[int]) -> None:
        self.identity = identity
        self.lines: List[Dict[str, Any]] = []
        self.written = descriptor is not None  # so far, every line
        self._descriptor = descriptor

    def add(self, line: Dict[str, Any]) -> None:
        self.lines.append(line)
        if self._descriptor is None:
            return
        encoded = json.dumps(line).encode() + b"\n"
        if not self.written:  # the one before may have been cut: this one is whole
            encoded = b"\n" + encoded
        try:
            self.written = os.write(self._descriptor, encoded) == len(encoded) and self.written
        except OSError:  # disk full; this agent keeps the line in memory
            self.written = False

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                os.close(descriptor)
            except OSError:  # NFS reports here that what was written had no room
                self.written = False


class CommandRecordStore:
    """The records of this user on this host."""

    def __init__(self, directories: List[str]) -> None:
        self._agent = describe_process(os.getpid())
        self._directories = [os.path.join(directory, "redbox-kept") for directory in directories]
        self._in_memory: Dict[str, CommandRecord] = {}  # those under way, and the latest unwritten ones
        self._removed_at: Dict[str, float] = {}  # by directory
        self._beginning = threading.Lock()

    def begin(self, identity: str, replaces: Optional[str] = None) -> CommandRecord:
        """Begin a record; refused if the identity has one, so that no recorded command runs twice.

        A record that ended with the outcome that `replaces` identifies is removed first: its reader requests
        another run.
        """
        if not IDENTITY.match(identity):
            raise ValueError(
                "the identity of a recorded command has 1 to 200 letters, digits, '.', '_' and '-'"
            )
        with self._beginning:
            for directory in self._directories:
                self._remove_expired(directory)
            if replaces is not None:
                self._remove(identity, replaces)
            if self.recall(identity)["state"] != "not recorded":
                raise FileExistsError(17, "this recorded command was begun before: recall it", identity)
            record = CommandRecord(identity, self._create(identity))
            self._in_memory[identity] = record
            record.add({"agent": self._agent})
        return record

    def end(self, record: CommandRecord, outcome: Dict[str, Any]) -> None:
        record.add({"outcome": outcome})
        record.close()
        if record.written:
            del self._in_memory[record.identity]
        elif len(self._in_memory) > MAX_UNWRITTEN:
            records = self._in_memory.copy()  # in one step: other threads begin and end records meanwhile
            ended = (key for key, other in records.items() if other.lines and "outcome" in other.lines[-1])
            self._in_memory.pop(next(ended, ""), None)

    def recall(self, identity: str) -> Dict[str, Any]:
        record = self._in_memory.get(identity)
        return state_of(record.lines if record else self._read(identity))

    def _remove(self, identity: str, outcome: str) -> None:
        paths = [os.path.join(directory, identity) for directory in self._directories]
        written = [path for path in paths if os.path.lexists(path)]
        record = self._in_memory.get(identity)
        if record is not None and not written and has_outcome(state_of(record.lines), outcome):
            del self._in_memory[identity]
        for path in written:
            remove_if(path, lambda path: has_outcome(state_of(read_lines(path)), outcome))

    def _create(self, identity: str) -> Optional[int]:
        # Without a writable directory this agent alone has the outcome, in memory: better than a submit that
        # is refused because a home directory is full.
        created = (create_in(directory, identity) for directory in self._directories)
        return next((descriptor for descriptor in created if descriptor is not None), None)

    def _remove_expired(self, directory: str) -> None:
        now = time.monotonic()
        if now - self._removed_at.get(directory, -REMOVE_EVERY_S) >= REMOVE_EVERY_S:
            self._removed_at[directory] = now
            remove_expired(directory)

    def _read(self, identity: str) -> List[Dict[str, Any]]:
        if not IDENTITY.match(identity):
            return []
        for directory in self._directories:
            with suppress(OSError):
                if is_private(directory):  # or another user could have put an outcome there
                    return read_lines(os.path.join(directory, identity))
        return []


def read_lines(path: str) -> List[Dict[str, Any]]:
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]  # a line without its end was not written completely
    return [line for line in map(parse_line, lines) if line] or [{}]


def parse_line(line: bytes) -> Dict[str, Any]:
    """Return a line of a record; empty for one that a full disk has cut."""
    try:
        value = json.loads(line.decode())
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def state_of(lines: List[Dict[str, Any]]) -> Dict[str, Any]:
    if not lines:
        return {"state": "not recorded"}
    if "outcome" in lines[-1]:
        return dict(lines[-1]["outcome"], state="ended")
    processes = [process for line in lines for process in line.values()]
    return {"state": "running" if any(is_alive(process) for process in processes) else "lost"}


def outcome_id(state: Dict[str, Any]) -> str:
    """Return a hash of the outcome; those of two runs differ at least by their duration."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def has_outcome(state: Dict[str, Any], identifier: str) -> bool:
    return state["state"] == "ended" and outcome_id(state) == identifier


def create_in(directory: str, identity: str) -> Optional[int]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        if not make_private(directory):
            return None
        return os.open(os.path.join(directory, identity), flags, 0o600)
    except FileExistsError:
        raise
    except OSError:
        return None


def make_private(directory: str) -> bool:
    """Make the directory unless it exists; return whether only the user has access to it."""
    parent = os.path.dirname(directory)
    if parent.startswith("/run/"):
        if not os.path.isdir(parent):
            return False
    else:
        make_for_user_alone(parent)
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    return is_private(directory)


def make_for_user_alone(directory: str) -> None:
    """Make it and those above it unless they exist; `makedirs` makes those above it by the login's umask."""
    if not os.path.isdir(directory):
        make_for_user_alone(os.path.dirname(directory))
        with suppress(FileExistsError):
            os.mkdir(directory, 0o700)


def is_private(directory: str) -> bool:
    status = os.lstat(directory)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def is_expired(path: str) -> bool:
    return os.lstat(path).st_mtime < time.time() - RETAINED_S


def remove_expired(directory: str) -> None:
    with suppress(OSError):
        for name in os.listdir(directory) if is_private(directory) else ():
            path = os.path.join(directory, name)
            with suppress(FileNotFoundError):  # removed by another agent of this user
                if not is_expired(path):
                    continue
                if name.endswith(CLAIM):  # left by an agent that was killed
                    os.unlink(path)
                else:
                    remove_if(path, is_expired)


def remove_if(path: str, condition: Callable[[str], bool]) -> None:
    """Remove a file that meets the condition, but never a new one that has replaced it since the check."""
    claim = path + CLAIM
    try:
        os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:  # another agent is removing it
        return
    try:
        if condition(path):
            os.unlink(path)
    finally:
        os.unlink(claim)


def encode_outcome(
    code: int, outputs: Tuple[bytes, bytes], took_s: float, *, timed_out: bool
) -> Dict[str, Any]:
    stdout, stderr = (base64.b64encode(output).decode() for output in outputs)
    return {"code": code, "stdout": stdout, "stderr": stderr, "took_s": took_s, "timed_out": timed_out}
