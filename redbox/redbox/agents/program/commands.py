"""Commands: a child in a session of its own, its input and secrets in unlinked files, its output bounded.

Nothing of a request reaches a shell, and nothing but argv is visible to others. A child ends with its
deadline or with its request, all processes of its session with it, unless it is kept.
"""

import os
import pwd
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, Any, Dict, List, Optional, Tuple

from redbox.agents.program.command_records import (
    CommandRecordStore,
    encode_outcome,
    name_outcome,
    name_process,
)
from redbox.agents.program.streams import WorkerStream
from redbox.agents.program.wire import CHUNK

KEPT_LIMIT_S = 120.0
KEPT_OUTPUT = 64 * 1024  # of each output; a submit says its id, or why not
MEMORY = "/dev/shm"  # noqa: S108 # what is made there has no name
MAX_INPUT = 64 * 1024 * 1024
ORPHANS_S = 1.0  # how long the output of an ended child is awaited while others hold its pipes


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def account_environment(account: pwd.struct_passwd, directories: List[str]) -> Dict[str, str]:
    return {
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell or "/bin/sh",
        "PATH": ":".join(directories),
        "LANG": "C.UTF-8",
    }


def find_tool(name: str, directories: List[str]) -> str:
    if os.path.isabs(name):
        return name
    if "/" not in name:
        for directory in directories:
            path = os.path.join(directory, name)
            if os.path.isabs(directory) and os.access(path, os.X_OK):
                return path
    raise FileNotFoundError(2, "not found in {}".format(":".join(directories)), name)


def unlinked_file() -> IO[bytes]:
    """Return a file without a name: in memory where there is /dev/shm."""
    directory = MEMORY if os.access(MEMORY, os.W_OK) else None
    return tempfile.TemporaryFile(dir=directory, buffering=0)


def receive_file(stream: WorkerStream, length: int, surplus: List[bytes]) -> IO[bytes]:
    """Store the next `length` bytes of the request's input."""
    file = unlinked_file()
    while length:
        data = surplus.pop() if surplus else stream.receive()
        if not data:
            raise ValueError("the input ended early")
        if len(data) > length:
            surplus.append(data[length:])
        length -= file.write(data[:length])
    file.seek(0)
    return file


def kill_session(leader: int) -> None:
    """Kill every process of the session; twice, since one of them may have been forking.

    Asked of the kernel by getsid: reading /proc/PID/stat waits for a process whose file server hangs.
    """
    for _ in range(2):
        for name in os.listdir("/proc"):
            if name.isdigit():
                kill_member(int(name), leader)


def kill_member(pid: int, leader: int) -> None:
    try:
        if os.getsid(pid) == leader:
            os.kill(pid, signal.SIGKILL)
    except OSError:  # gone, or setuid and not ours to end
        return


class ChildCommand:
    """One started command."""

    def __init__(
        self, argv: List[bytes], environment: Dict[bytes, bytes], cwd: bytes, files: List[IO[bytes]]
    ) -> None:
        self._started_at = time.monotonic()
        self._ending = (
            threading.Lock()
        )  # a pid is not waited for while it is killed: it could be another's by then
        self._killed = False
        self.timed_out = False
        self.truncated = False
        self._process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment,
            stdin=files[0],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=[file.fileno() for file in files[1:]],
        )
        self.pid = self._process.pid

    def kill(self) -> None:
        with self._ending:
            self._killed = True
            if self._process.returncode is None:
                kill_session(self.pid)

    def took_s(self) -> float:
        return time.monotonic() - self._started_at

    def finish(
        self, limit_s: float, output_limit: int, *, kill_at_limit: bool = True
    ) -> Tuple[int, bytes, bytes]:
        """Collect the output until all who hold it, or the child and its time, are at an end.

        One that writes more than `output_limit` of either is ended, or the rest is dropped.
        """
        outputs: Dict[Any, bytearray] = {self._process.stdout: bytearray(), self._process.stderr: bytearray()}
        with selectors.DefaultSelector() as selector:
            for pipe in outputs:
                selector.register(pipe, selectors.EVENT_READ, pipe)
            while selector.get_map():
                self._kill_when_late(limit_s)
                ended = self._poll() is not None  # before the look: what it wrote last is there by then
                ready = selector.select(min(ORPHANS_S, max(0.0, limit_s - self.took_s())) or ORPHANS_S)
                if ended and (not ready or self.took_s() > limit_s + ORPHANS_S):
                    break
                for key, _ in ready:
                    self._read(selector, key.data, outputs[key.data], output_limit)
                if self.truncated and kill_at_limit:
                    self.kill()
        return self._wait(limit_s), bytes(outputs[self._process.stdout]), bytes(outputs[self._process.stderr])

    def _read(
        self, selector: selectors.BaseSelector, pipe: IO[bytes], output: bytearray, output_limit: int
    ) -> None:
        data = os.read(pipe.fileno(), CHUNK)
        if not data:
            selector.unregister(pipe)
        room = output_limit - len(output)
        self.truncated = self.truncated or len(data) > room
        output += data[:room]

    def _kill_when_late(self, limit_s: float) -> None:
        if not self.timed_out and self.took_s() >= limit_s and self._poll() is None:
            self.timed_out = True
            self.kill()

    def _poll(self) -> Optional[int]:
        with self._ending:
            return self._process.poll()

    def _wait(self, limit_s: float) -> int:
        # A child that closed its outputs and lives on: its end comes from outside, so it is looked for.
        pause = 0.001
        while self._poll() is None:
            time.sleep(pause)
            pause = min(0.1, pause * 2)
            self._kill_when_late(limit_s)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()
        return self._process.returncode


class CommandOperations:
    """The operations `run` and `recall`."""

    def __init__(self, account: pwd.struct_passwd, directories: List[str], kept: CommandRecordStore) -> None:
        self._account_environment = account_environment(account, directories)
        self._directories = directories
        self._kept = kept

    def recall(self, stream: WorkerStream) -> Dict[str, Any]:
        state = self._kept.recall(stream.request["keep"])
        return dict(state, outcome_id=name_outcome(state)) if state["state"] == "ended" else state

    def run(self, stream: WorkerStream) -> Dict[str, Any]:
        request = stream.request
        lengths = [request["stdin"]] + [length for _, length in request["inherit"]]
        if sum(lengths) > MAX_INPUT or min(lengths) < 0:
            raise ValueError("more than {} bytes of input".format(MAX_INPUT))
        surplus: List[bytes] = []
        files: List[IO[bytes]] = []
        try:
            files.extend(receive_file(stream, length, surplus) for length in lengths)
            return self._run_kept(stream, files) if request["keep"] else self._run(stream, files)
        finally:
            for file in files:
                file.close()

    def _start(self, request: Dict[str, Any], files: List[IO[bytes]]) -> ChildCommand:
        environment = dict(self._account_environment if request["account_env"] else {}, **request["env"])
        argv = list(request["argv"])
        argv[0] = find_tool(argv[0], self._directories)
        for (placeholder, _), file in zip(request["inherit"], files[1:]):
            argv = [word.replace(placeholder, str(file.fileno())) for word in argv]
        return ChildCommand(
            [to_bytes(word) for word in argv],
            {to_bytes(name): to_bytes(value) for name, value in environment.items()},
            to_bytes(request["cwd"] or "/"),  # not the home directory, whose file server may be dead
            files,
        )

    def _run(self, stream: WorkerStream, files: List[IO[bytes]]) -> Dict[str, Any]:
        request = stream.request
        child = self._start(request, files)
        stream.call_when_cancelled(child.kill)
        code, *outputs = child.finish(float(request["deadline"]), int(request["output_limit"]))
        for number, output in enumerate(outputs, 1):
            for start in range(0, len(output), CHUNK):
                stream.send(output[start : start + CHUNK], {"fd": number})
        return {
            "code": code,
            "took_s": child.took_s(),
            "timed_out": child.timed_out,
            "truncated": child.truncated,
        }

    def _run_kept(self, stream: WorkerStream, files: List[IO[bytes]]) -> Dict[str, Any]:
        stream.keep()
        record = self._kept.begin(stream.request["keep"], stream.request.get("replaces"))
        try:
            child = self._start(stream.request, files)
        except (OSError, ValueError) as error:
            # It never ran, which is an outcome: said as a shell says it.
            outcome = encode_outcome(127, (b"", to_bytes(str(error))), 0.0, timed_out=False)
        else:
            record.add({"child": name_process(child.pid)})
            code, stdout, stderr = child.finish(KEPT_LIMIT_S, KEPT_OUTPUT, kill_at_limit=False)
            outcome = encode_outcome(code, (stdout, stderr), child.took_s(), timed_out=child.timed_out)
        self._kept.end(record, outcome)
        return outcome
