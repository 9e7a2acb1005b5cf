"""Outcomes of commands that must not be lost when the server goes away: submits.

A record is a file of lines that are only ever appended to, in a 0700 directory of the user: begun (and by
which agent), started (and as which process), ended (and how). The next agent reads there what became of it,
although it never saw it run. The user's runtime directory is preferred: local, quick, and of this host, as
processes are.

A record is removed when it is a day old, or for the next run of its command, by a server that names the
outcome which it has read there and that nothing came of.
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
from typing import Any, Callable, Dict, List, Optional, Tuple

IDENTITY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}\Z")
RETAINED_S = 86400.0
SWEEP_S = 3600.0  # looking through a day's records takes longer than a submit
MAX_UNWRITTEN = 200
CLAIM = "~"  # ends the name of the file by which one agent alone removes a record; no identity has it


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def process_start(pid: int) -> str:
    """Return when a process of this user started, in ticks since boot: with pid and boot, its name.

    Others' are not looked at: reading their stat may wait for a file server that hangs.
    """
    try:
        if os.stat("/proc/{}".format(pid)).st_uid != os.getuid():
            return ""
        with open("/proc/{}/stat".format(pid), "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return fields[19].decode() if fields[0] not in (b"Z", b"X") else ""


def name_process(pid: int) -> Dict[str, Any]:
    return {"boot": boot_id(), "pid": pid, "start": process_start(pid)}


def is_alive(named: Dict[str, Any]) -> bool:
    return (
        bool(named["start"]) and named["boot"] == boot_id() and process_start(named["pid"]) == named["start"]
    )


def state_directories(uid: int, home: str) -> List[str]:
    return ["/run/user/{}".format(uid), os.path.join(home, ".local", "state")]


class CommandRecord:
    """What is known of one kept command, being written."""

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
        try:
            self.written = os.write(self._descriptor, encoded) == len(encoded) and self.written
        except OSError:  # no room; the line is known as long as this agent lives
            self.written = False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class CommandRecordStore:
    """The records of this user on this host."""

    def __init__(self, directories: List[str]) -> None:
        self._directories = [os.path.join(directory, "redbox-kept") for directory in directories]
        self._here: Dict[str, CommandRecord] = {}  # those under way, and the latest that could not be written
        self._swept: Dict[str, float] = {}  # when each directory was last rid of old records
        self._beginning = threading.Lock()

    def begin(self, identity: str, replaces: Optional[str] = None) -> CommandRecord:
        """Begin a record, which is refused for an identity that has one: nothing kept runs twice.

        One that ended with the outcome that `replaces` names gives way: whoever names it knows it, and asks
        for another run all the same.
        """
        if not IDENTITY.match(identity):
            raise ValueError("a kept command is named by 1 to 200 letters, digits, '.', '_' and '-'")
        with self._beginning:
            for directory in self._directories:
                self._sweep(directory)
            if replaces is not None:
                self._forget(identity, replaces)
            if self.recall(identity)["state"] != "unheard":
                raise FileExistsError(17, "this kept command was begun before: recall it", identity)
            record = CommandRecord(identity, self._create(identity))
            self._here[identity] = record
            record.add({"agent": name_process(os.getpid())})
        return record

    def end(self, record: CommandRecord, outcome: Dict[str, Any]) -> None:
        record.add({"outcome": outcome})
        record.close()
        if record.written:
            del self._here[record.identity]
        elif len(self._here) > MAX_UNWRITTEN:
            ended = [identity for identity, other in self._here.items() if "outcome" in other.lines[-1]]
            del self._here[ended[0]]

    def recall(self, identity: str) -> Dict[str, Any]:
        """Return its state, and the outcome where it ended."""
        record = self._here.get(identity)
        return state_of(record.lines if record else self._read(identity))

    def _forget(self, identity: str, outcome: str) -> None:
        paths = [os.path.join(directory, identity) for directory in self._directories]
        written = [path for path in paths if os.path.lexists(path)]
        record = self._here.get(identity)
        if record is not None and not written and is_outcome(state_of(record.lines), outcome):
            del self._here[identity]
        for path in written:
            remove_if(path, lambda path: is_outcome(state_of(read_lines(path)), outcome))

    def _create(self, identity: str) -> Optional[int]:
        # Where no directory can be written the outcome is known as long as this agent lives, which is better
        # than refusing to submit because a home directory is full.
        for directory in self._directories:
            descriptor = create_in(directory, identity)
            if descriptor is not None:
                return descriptor
        return None

    def _sweep(self, directory: str) -> None:
        now = time.monotonic()
        if now - self._swept.get(directory, -SWEEP_S) >= SWEEP_S:
            self._swept[directory] = now
            forget_old(directory)

    def _read(self, identity: str) -> List[Dict[str, Any]]:
        if not IDENTITY.match(identity):
            return []
        for directory in self._directories:
            with suppress(OSError):
                return read_lines(os.path.join(directory, identity))
        return []


def read_lines(path: str) -> List[Dict[str, Any]]:
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]  # what has no end of line was not written whole
    return [json.loads(line.decode()) for line in lines] or [{}]


def state_of(lines: List[Dict[str, Any]]) -> Dict[str, Any]:
    if not lines:
        return {"state": "unheard"}
    if "outcome" in lines[-1]:
        return dict(lines[-1]["outcome"], state="ended")
    processes = [named for line in lines for named in line.values()]
    return {"state": "running" if any(is_alive(named) for named in processes) else "lost"}


def name_outcome(state: Dict[str, Any]) -> str:
    """Return what names the outcome of one that ended: another run's differs, if only by how long it took."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def is_outcome(state: Dict[str, Any], named: str) -> bool:
    return state["state"] == "ended" and name_outcome(state) == named


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
    """Make the directory where its parent is the user's own, and say whether it is the user's alone."""
    parent = os.path.dirname(directory)
    if parent.startswith("/run/"):
        if not os.path.isdir(parent):
            return False
    else:
        os.makedirs(parent, mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    return is_private(directory)


def is_private(directory: str) -> bool:
    status = os.lstat(directory)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def is_old(path: str) -> bool:
    return os.lstat(path).st_mtime < time.time() - RETAINED_S


def forget_old(directory: str) -> None:
    with suppress(OSError):
        for name in os.listdir(directory) if is_private(directory) else ():
            path = os.path.join(directory, name)
            with suppress(FileNotFoundError):  # another agent of this user does the same
                if not is_old(path):
                    continue
                if name.endswith(CLAIM):  # of an agent that was killed over it
                    os.unlink(path)
                else:
                    remove_if(path, is_old)


def remove_if(path: str, condition: Callable[[str], bool]) -> None:
    """Remove a file of which this holds; never one that took its place after it was looked at."""
    claim = path + CLAIM
    try:
        os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:  # another agent removes it
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
