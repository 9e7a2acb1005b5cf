"""The report of the pod: what became of each container, as lines of JSON in a file that red-box reads.

Each line is the whole report. Any thread changes it; the main thread writes it, at most once per pause, so
that changes that follow each other at once are one line.
"""

import json
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

Fields = Dict[str, Any]
MAX_EVENTS = 32
MAX_MESSAGE = 4096
MAX_FILE = 1024 * 1024
MAX_LINE, SHORT = 256 * 1024, 64


def timestamp(seconds: Optional[float] = None) -> str:
    at = time.time() if seconds is None else seconds
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ".{:06d}Z".format(int(at % 1 * 1_000_000))


def clip(text: str, limit: int = MAX_MESSAGE) -> str:
    clean = "".join(c if c in "\n\t" or c >= " " else " " for c in text)
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def waiting(reason: str, message: str = "") -> Fields:
    return {"waiting": {"reason": reason, "message": clip(message)}}


def running(started_at: float) -> Fields:
    return {"running": {"startedAt": timestamp(started_at)}}


def terminated(exit_code: int, reason: str, message: str, started_at: Optional[float]) -> Fields:
    started = timestamp(started_at) if started_at is not None else None
    return {
        "terminated": {
            "exitCode": exit_code,
            "reason": reason,
            "message": clip(message),
            "startedAt": started,
            "finishedAt": timestamp(),
        }
    }


class StatusReport:
    """The state of all containers, and the last events."""

    def __init__(self, containers: List[Tuple[str, str]], node: Fields, *, settles: bool = False) -> None:
        """`settles`: once its main container has started, nothing but its end changes the report."""
        self._settles = settles
        self._lock = threading.Lock()
        self.on_change: Callable[[], None] = lambda: None
        self._changed = True
        self._events = 0
        self._pod: Fields = dict(node, version=1, done=False, stopped=False, reason="", message="", events=[])
        has_inits = any(kind != "main" for _, kind in containers)
        first = waiting("PodInitializing" if has_inits else "ContainerCreating")
        self._containers: Dict[str, Fields] = {
            name: first_row(name, kind, first) for name, kind in containers
        }

    def add(self, container: str, kind: str) -> None:
        """A container that the pod did not begin with."""
        with self._lock:
            self._containers[container] = first_row(container, kind, waiting("ContainerCreating"))
            self._changed = True
        self.on_change()

    def change(self, container: str, **fields: object) -> None:
        """Change fields of one container, named as in the report."""
        with self._lock:
            row = self._containers[container]
            if all(row[name] == value for name, value in fields.items()):
                return
            row.update(fields)
            self._changed = True
        self.on_change()

    def change_pod(self, **fields: object) -> None:
        """Change fields of the pod itself."""
        with self._lock:
            self._pod.update(fields)
            self._changed = True
        self.on_change()

    def state(self, container: str) -> Fields:
        with self._lock:
            return dict(self._containers[container]["state"])

    def event(self, reason: str, message: str, container: str = "", *, warning: bool = False) -> None:
        with self._lock:
            self._events += 1
            event = {
                "number": self._events,
                "type": "Warning" if warning else "Normal",
                "reason": reason,
                "message": clip(message, 1024),
                "container": container,
                "at": timestamp(),
            }
            self._pod["events"] = [*self._pod["events"][1 - MAX_EVENTS :], event]
            self._changed = True
        self.on_change()

    def explain(self, reason: str, message: str) -> None:
        """Give the pod a reason; the first one stays."""
        with self._lock:
            if not self._pod["reason"]:
                self._pod.update(reason=reason, message=clip(message))
                self._changed = True
        self.on_change()

    def finish(self, *, stopped: bool) -> None:
        """Nothing follows; `stopped`: a signal came before all containers had ended by themselves."""
        with self._lock:
            self._pod.update(done=True, stopped=stopped)
            self._changed = True

    def take_line(self) -> Optional[bytes]:
        """Return the report as a line if it has changed since the last one."""
        with self._lock:
            if not self._changed:
                return None
            self._changed = False
            containers = list(self._containers.values())
            has_started = all("waiting" not in row["state"] for row in containers)
            is_debugged = any(row["kind"] == "ephemeral" and "running" in row["state"] for row in containers)
            settled = self._settles and has_started and not is_debugged
            report = dict(self._pod, at=timestamp(), settled=settled, containers=containers)
            return encode_report(report)

    def keep(self) -> None:
        """Have the last line written again: it did not reach the file."""
        with self._lock:
            self._changed = True


def first_row(name: str, kind: str, state: Fields) -> Fields:
    return {
        "name": name,
        "kind": kind,
        "imageID": "",
        "state": state,
        "lastState": {},
        "ready": False,
        "started": False,
        "restartCount": 0,
    }


def encode_report(report: Fields) -> bytes:
    """One line; red-box reads none that is too long, so one that would be is shortened."""
    line = json.dumps(report, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    if len(line) <= MAX_LINE:
        return line
    events = [dict(event, message=clip(event["message"], SHORT)) for event in report["events"]]
    containers = [shorten(row) for row in report["containers"]]
    short = dict(report, events=events, containers=containers)
    return json.dumps(short, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def shorten(row: Fields) -> Fields:
    """A container's row with the first of its messages."""
    states = {
        name: {kind: dict(state, message=clip(state["message"], SHORT)) if "message" in state else state}
        for name in ("state", "lastState")
        for kind, state in row[name].items()
    }
    return dict(row, **states)


class ReportFile:
    """Appends lines; a file that has grown too long is replaced by one with the last line alone."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._broken = os.path.exists(path) and os.path.getsize(path) > 0

    def write(self, line: bytes) -> None:
        """Write and close: a network file system shows other hosts a file once it is closed."""
        with open(self._path, "ab", buffering=0, opener=private) as file:
            if os.fstat(file.fileno()).st_size + len(line) <= MAX_FILE:
                data = b"\n" + line if self._broken else line
                self._broken = True  # until all of the line is in the file
                self._broken = file.write(data) != len(data)
                if self._broken:
                    raise OSError("the report was written in part")
                return
        self._replace(line)

    def _replace(self, line: bytes) -> None:
        new = self._path + ".new"
        with open(new, "wb", buffering=0, opener=private) as file:
            if file.write(line) != len(line):
                raise OSError("the report was written in part")
        os.rename(new, self._path)
        self._broken = False


def private(path: str, flags: int) -> int:
    """For the user alone; no link is followed, and no FIFO waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
