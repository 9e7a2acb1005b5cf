"""Commands: a child in a session of its own, with input and secrets in unlinked files and bounded output.

No part of a request reaches a shell, and only argv is visible to other users. A child is killed at its
deadline or with its request, with all processes of its session, unless the command is recorded.
"""

import os
import pwd
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from typing import IO, Any, Dict, List, Optional, Tuple

from redbox.agents.program.command_records import (
    CommandRecordStore,
    describe_process,
    encode_outcome,
    outcome_id,
)
from redbox.agents.program.session import WorkerStream
from redbox.agents.program.wire import CHUNK

RECORDED_LIMIT_S = 120.0
RECORDED_OUTPUT = 64 * 1024  # of each output; sbatch prints a job id or an error
MEMORY = "/dev/shm"  # noqa: S108 # files there are unlinked
MAX_INPUT = 64 * 1024 * 1024
ORPHANS_S = 1.0  # wait for more output after the child's end, while other processes hold its pipes


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
    where = ":".join(directories)
    raise FileNotFoundError(
        2,
        "not found in {}: name its directory in `path` of /etc/redbox/agent.conf there, or where that is not "
        "installed in agents.ssh.path of red-box".format(where),
        name,
    )


def unlinked_file() -> IO[bytes]:
    """Return a file without a name, in memory if there is /dev/shm."""
    with suppress(OSError):  # no such directory, or a file system that has only files with names
        return open(os.open(MEMORY, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


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

    By getsid, since reading /proc/PID/stat blocks on a process whose file server hangs.
    """
    for _ in range(2):
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            with suppress(OSError):  # gone, or setuid and out of this user's reach
                if os.getsid(pid) == leader:
                    os.kill(pid, signal.SIGKILL)


class ChildCommand:
    """One started command."""

    def __init__(
        self, argv: List[bytes], environment: Dict[bytes, bytes], cwd: bytes, files: List[IO[bytes]]
    ) -> None:
        self._started_at = time.monotonic()
        self._ending = threading.Lock()  # not reaped while it is killed: its pid could be reused in between
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
        """Collect the output until its holders have closed it, or ORPHANS_S after the child's end.

        A child that writes more than `output_limit` of either is killed, or the rest is dropped.
        """
        outputs: Dict[Any, bytearray] = {self._process.stdout: bytearray(), self._process.stderr: bytearray()}
        with selectors.PollSelector() as selector:
            for pipe in outputs:
                selector.register(pipe, selectors.EVENT_READ, pipe)
            while selector.get_map():
                self._kill_when_late(limit_s)
                ended = self._poll() is not None  # polled before select, which then shows its last output
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
        # A child may close its outputs and live on, so its end is polled.
        pause = 0.00005  # most end at once
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

    def __init__(
        self, account: pwd.struct_passwd, directories: List[str], records: CommandRecordStore
    ) -> None:
        self._account_environment = account_environment(account, directories)
        self._directories = directories
        self._records = records

    def recall(self, stream: WorkerStream) -> Dict[str, Any]:
        state = self._records.recall(stream.request["keep"])
        return dict(state, outcome_id=outcome_id(state)) if state["state"] == "ended" else state

    def run(self, stream: WorkerStream) -> Dict[str, Any]:
        request = stream.request
        lengths = [request["stdin"]] + [length for _, length in request["inherit"]]
        if sum(lengths) > MAX_INPUT or min(lengths) < 0:
            raise ValueError("more than {} bytes of input".format(MAX_INPUT))
        surplus = [stream.first_input] if stream.first_input else []
        files: List[IO[bytes]] = []
        try:
            files.extend(receive_file(stream, length, surplus) for length in lengths)
            return self._run_recorded(stream, files) if request["keep"] else self._run(stream, files)
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
            to_bytes(request["cwd"] or "/"),  # not the home directory, whose file server may hang
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

    def _run_recorded(self, stream: WorkerStream, files: List[IO[bytes]]) -> Dict[str, Any]:
        stream.keep_running()
        record = self._records.begin(stream.request["keep"], stream.request.get("replaces"))
        try:
            child = self._start(stream.request, files)
        except (OSError, ValueError) as error:
            # A command that did not start has an outcome too: a shell's 127.
            outcome = encode_outcome(127, (b"", to_bytes(str(error))), 0.0, timed_out=False)
        else:
            record.add({"child": describe_process(child.pid)})
            code, stdout, stderr = child.finish(RECORDED_LIMIT_S, RECORDED_OUTPUT, kill_at_limit=False)
            outcome = encode_outcome(code, (stdout, stderr), child.took_s(), timed_out=child.timed_out)
        self._records.end(record, outcome)
        return outcome
