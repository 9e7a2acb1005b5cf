"""A program of the server's in a step of a job, which exchanges bytes with the server through this agent.

The step ends with its request, however that ends: its input is closed, then srun gets SIGTERM, and what is
left of the step is cancelled by its name. The job itself is never touched.
"""

import os
import pwd
import re
import select
import subprocess
import threading
import time
from contextlib import suppress
from typing import IO, Any, Dict, List, Optional

from redbox.agents.program.commands import account_environment, find_tool, to_bytes, unlinked_file
from redbox.agents.program.session import RequestCancelled, WorkerStream, start_thread
from redbox.agents.program.wire import CHUNK
from redbox.node.program.pipes import enlarge_pipe
from redbox.node.program.sent_programs import packed_program

CLOSED_S = 2.5  # for a program to end once its input is closed
TERMINATED_S = 3.0  # for srun to end its step
CANCEL_S = 20.0
BUSY_S = 0.005  # between two reads of output that goes on
GATHER_S = 0.002
MESSAGE = 2000
JOB = re.compile(r"[0-9]+(_[0-9]+)?")
STEP_NAME = re.compile(r"rbx-[0-9a-f]{8,32}")


class RunningStep:
    """One srun."""

    def __init__(self, argv: List[str], environment: Dict[str, str], job: str, name: str) -> None:
        self._job, self._name = job, name
        self._ending = threading.Lock()
        self._messages: IO[bytes] = unlinked_file()
        self._environment = {to_bytes(key): to_bytes(value) for key, value in environment.items()}
        self._process = subprocess.Popen(
            [to_bytes(word) for word in argv],
            cwd="/",
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            start_new_session=True,
            bufsize=0,
        )
        self._read_at = 0.0
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None  # noqa: S101 # PIPE, for the type checker
            enlarge_pipe(pipe.fileno())

    def feed(self, stream: WorkerStream) -> None:
        """Pass on the program, and the request's input until it ends, or srun no longer reads it.

        The program is compiled while Slurm starts the step.
        """
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101 # PIPE, for the type checker
        os.set_blocking(pipe.fileno(), False)
        room = select.poll()
        room.register(pipe.fileno(), select.POLLOUT)
        try:
            data = packed_program(stream.first_input)
            while data:
                rest = memoryview(data)
                while rest:
                    room.poll()
                    with suppress(BlockingIOError):
                        rest = rest[os.write(pipe.fileno(), rest) :]
                    if rest:  # srun reads 1 KiB at a time: a write that waits would wake for each
                        time.sleep(GATHER_S)
                data = stream.receive()
        except (RequestCancelled, OSError):
            pass
        finally:
            pipe.close()

    def read(self) -> bytes:
        """Return the next output: Slurm passes it on in pieces of 1 KiB, gathered while it goes on."""
        pipe = self._process.stdout
        assert pipe is not None  # noqa: S101 # as above
        if time.monotonic() - self._read_at < BUSY_S:
            time.sleep(GATHER_S)
        data = os.read(pipe.fileno(), CHUNK)
        self._read_at = time.monotonic()
        return data

    def end(self) -> None:
        """Wait for its end, and bring it about; a second call waits for the first."""
        with self._ending:
            if self._waited(CLOSED_S) is None:
                with suppress(OSError):
                    self._process.terminate()
                if self._waited(TERMINATED_S) is None:
                    self._process.kill()
                self._cancel_step()
            self._process.wait()

    def _waited(self, limit_s: float) -> Optional[int]:
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def _cancel_step(self) -> None:
        for line in self._slurm(["squeue", "-h", "-s", "-j", self._job, "-o", "%i %j"]).splitlines():
            step, _, name = line.strip().partition(" ")
            if name == self._name and "." in step:
                self._slurm(["scancel", step])

    def _slurm(self, argv: List[str]) -> str:
        directories = self._environment[b"PATH"].decode().split(":")
        try:
            tool = find_tool(argv[0], directories)
            output = subprocess.run(
                [tool, *argv[1:]],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=CANCEL_S,
                check=False,
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return ""
        return output.decode("utf-8", "replace")

    def result(self) -> Dict[str, Any]:
        self._messages.seek(0)
        text = self._messages.read(1024 * 1024).decode("utf-8", "replace").strip()
        self._messages.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return {"code": self._process.returncode, "message": text[-MESSAGE:]}


class StepOperations:
    """The operation `run_program`."""

    def __init__(self, account: pwd.struct_passwd, directories: List[str]) -> None:
        self._environment = account_environment(account, directories)
        self._directories = directories

    def run_program(self, stream: WorkerStream) -> Dict[str, Any]:
        request = stream.request
        job, name = request["job"], request["name"]
        if not JOB.fullmatch(job) or not STEP_NAME.fullmatch(name):
            raise ValueError("the job or the name of a step")
        argv = list(request["argv"])
        argv[0] = find_tool(argv[0], self._directories)
        stream.is_recorded = True  # the agent waits for its end when the server has gone
        running = RunningStep(argv, dict(self._environment, **request["env"]), job, name)
        try:
            start_thread(lambda: running.feed(stream))
            stream.call_when_cancelled(lambda: start_thread(running.end))
            data = running.read()
            while data:
                stream.send(data)
                data = running.read()
        finally:
            running.end()
            stream.end()  # what feeds it waits for input
            result = running.result()
        return result
