"""Sessions from a container: `redbox-companion exec` beside a running companion, as real processes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redbox_companion.streams.sessions import (
    MOST_SESSIONS,
    SILENT_S,
    SessionBridge,
    SessionServer,
    received_request,
)
from tests.companion.fakes import ScriptedServer
from tests.companion.harness import COMMAND, Pod
from tests.companion.test_job_channel import PlainSocket

RUNNING = {"phase": "Running", "state": "RUNNING", "jobID": "7"}
SH = ("exec", "--", "sh", "-c")
CANNOT_START = 125


@pytest.fixture
def companion(pod: Pod, redbox: ScriptedServer) -> Iterator[subprocess.Popen[bytes]]:
    """A running one, which takes sessions."""
    redbox.job = dict(RUNNING)
    process = pod.start(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while pod.environ["REDBOX_KEY"] not in unix_sockets():
        assert process.poll() is None
        threading.Event().wait(0.05)
    yield process
    process.kill()
    process.wait()


def unix_sockets() -> str:
    return Path("/proc/net/unix").read_text()


@contextmanager
def session(pod: Pod, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=pod.environ, stdin=pipe, stdout=pipe, stderr=pipe, cwd=pod.folder
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("companion")
def test_a_command_has_its_own_streams_and_exit_code(pod: Pod) -> None:
    done = pod.run(*SH, "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


@pytest.mark.usefixtures("companion")
def test_bytes_pass_both_ways_unchanged(pod: Pod) -> None:
    sent = os.urandom(1_500_000)
    with session(pod, "exec", "--", "cat") as process:
        out, err = process.communicate(sent, timeout=60)
    assert (out == sent, err, process.returncode) == (True, b"", 0)


@pytest.mark.usefixtures("companion")
def test_a_terminal_passes_its_sizes_and_ctrl_c(pod: Pod) -> None:
    screen, inside = pty.openpty()
    resize(screen, 33, 101)
    before = termios.tcgetattr(inside)
    process = subprocess.Popen(
        [*COMMAND, "shell"], env=pod.environ, stdin=inside, stdout=inside, stderr=inside
    )
    try:
        read_until(screen, b"101x33\n")
        resize(screen, 44, 120)
        process.send_signal(signal.SIGWINCH)
        read_until(screen, b"120x44\n")
        os.write(screen, b"\x03")
        assert process.wait(60) == 130
        assert termios.tcgetattr(inside) == before
    finally:
        process.kill()
        process.wait()
        os.close(screen)
        os.close(inside)


def test_sizes_of_the_terminal_may_come_with_the_request() -> None:
    """The program is told of a new size as soon as it has asked, and the companion may be slow to read."""
    program, companion = socket.socketpair()
    with program, companion:
        socket.send_fds(program, [b"{"], [0, 1, 2])
        program.sendall(b'"tty": true, "size": {"columns": 80, "rows": 24}}\n')
        for rows in (30, 40):
            program.sendall(b'{"size": {"columns": 99, "rows": %d}}\n' % rows)
        with received_request(companion) as (request, _):
            assert request == {"tty": True, "size": {"columns": 99, "rows": 40}}


def test_streams_are_given_back_as_they_were() -> None:
    """They are the shell's as well, which takes input that does not block for ended input."""
    program, companion = socket.socketpair()
    descriptors = [*os.pipe(), os.open(os.devnull, os.O_WRONLY | os.O_NONBLOCK)]
    socket.send_fds(program, [b"{}\n"], descriptors)
    with program, companion, received_request(companion):
        assert [os.get_blocking(descriptor) for descriptor in descriptors] == [False] * 3
    assert [os.get_blocking(descriptor) for descriptor in descriptors] == [True, True, False]
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.usefixtures("companion")
def test_a_refusal_is_one_sentence(pod: Pod, redbox: ScriptedServer) -> None:
    redbox.refuse_port = (403, {"title": "Forbidden", "detail": "exec is turned off"})
    done = pod.run(*SH, "true")
    assert (done.returncode, done.stderr) == (
        CANNOT_START,
        b"redbox-companion: Forbidden: exec is turned off\n",
    )


@pytest.mark.usefixtures("companion")
def test_a_session_that_stalls_holds_back_no_other_and_there_are_at_most_four(pod: Pod) -> None:
    with session(pod, "exec", "--", "yes") as stalled, ExitStack() as others:
        assert stalled.stdout is not None
        assert stalled.stdout.read(2) == b"y\n"
        for _ in range(3):
            assert is_echoed(others.enter_context(session(pod, "exec", "--", "cat")))
        assert b"at most 4 sessions" in pod.run("exec", "--", "true").stderr


@pytest.mark.timeout(60)
def test_where_all_places_are_taken_the_longest_silent_session_gives_way() -> None:
    """A kubectl that was killed leaves its program in the container: four of them let no other one in."""
    ends = ExitStack()

    def upgrade(*_: Any) -> Any:
        ours, theirs = socket.socketpair()
        remotes.append(ends.enter_context(theirs))
        return SimpleNamespace(
            socket=PlainSocket(ours), received=b"", token=lambda: "token", renew=lambda: True
        )

    def begin() -> socket.socket:
        program, companion = socket.socketpair()
        ends.enter_context(program).settimeout(60)
        socket.send_fds(program, [b"{"], [inside, inside, inside])
        program.sendall(b"}\n")
        server.take(companion)
        return program

    remotes: list[socket.socket] = []
    redbox: Any = SimpleNamespace(upgrade=upgrade)
    server = SessionServer(redbox, "/v1/jobs/k1", 1)
    inside, outside = os.pipe()
    for descriptor in (inside, outside):
        ends.callback(os.close, descriptor)
    with ends:
        programs = []
        for count in range(1, MOST_SESSIONS + 1):
            programs.append(begin())
            while len(server._bridges) < count:
                time.sleep(0.01)
        assert b"at most 4 sessions" in begin().recv(65536)
        server._bridges[1].moved_at -= SILENT_S + 60
        server._bridges[2].moved_at -= SILENT_S
        begin()
        assert b"took this one's place: it was silent for 11 min" in programs[1].recv(65536)
        while len(remotes) <= MOST_SESSIONS:
            time.sleep(0.01)
        assert select.select(programs[:1] + programs[2:], [], [], 0)[0] == []


@pytest.mark.parametrize(("reads", "code"), [(True, 3), (False, CANNOT_START)])
def test_a_reader_that_pauses_gets_the_rest_and_one_that_stays_away_no_good_end(
    monkeypatch: pytest.MonkeyPatch, *, reads: bool, code: int
) -> None:
    monkeypatch.setattr("redbox_companion.streams.sessions.UNREAD_S", 0.5 if reads else 0.0)
    received = bytearray()
    if reads:  # by this clock all pauses together are longer
        clock = SimpleNamespace(monotonic=lambda: len(received) / 100_000)
        monkeypatch.setattr("redbox_companion.streams.sessions.time", clock)
    ours, theirs = socket.socketpair()
    out, inside = os.pipe()
    os.set_blocking(inside, False)
    content = os.urandom(300_000)
    bridge = SessionBridge(ours, [-1, inside, -1], cast("Any", EndedChannel(content)))

    def read() -> None:
        while len(received) < len(content):
            threading.Event().wait(0.1)
            received.extend(os.read(out, 30_000))

    reader = threading.Thread(target=read, daemon=True)
    with ours, theirs:
        if reads:
            reader.start()
        assert bridge.run()[1] == code
    if reads:
        reader.join(60)
        assert received == content
    for descriptor in (out, inside):
        os.close(descriptor)


class EndedChannel:
    """A session that has written all this, and has ended."""

    has_unread = True
    has_room = is_closed = False

    def __init__(self, content: bytes) -> None:
        self.socket, self._there = socket.socketpair()
        self._content = content

    def events(self, *, reads: bool) -> int:
        return select.POLLIN * reads

    def wait(self, poll: select.poll, *, has_unread: bool) -> dict[int, int]:
        return dict(poll.poll(0 if has_unread else None))

    def flush(self) -> None:
        pass

    def read(self) -> Iterator[tuple[int, bytes]]:
        yield 1, self._content
        yield (
            3,
            json.dumps(
                {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}
            ).encode(),
        )

    def close(self, *, whole: bool) -> None:
        assert whole
        self.socket.close()
        self._there.close()


def is_echoed(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"here\n")
    process.stdin.flush()
    return process.stdout.readline() == b"here\n"


def test_a_session_ends_with_its_companion(pod: Pod, companion: subprocess.Popen[bytes]) -> None:
    with session(pod, "exec", "--", "cat") as process:
        assert is_echoed(process)
        companion.kill()
        assert process.wait(60) == CANNOT_START
        assert process.stderr is not None
        assert b"the companion has ended, and this session with it" in process.stderr.read()


def test_without_a_companion_the_sentence_says_so(pod: Pod) -> None:
    done = pod.run(*SH, "true")
    assert done.returncode == CANNOT_START
    assert b"no session is possible before Slurm shows the job" in done.stderr


def resize(screen: int, rows: int, columns: int) -> None:
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(screen: int, text: bytes) -> None:
    shown = b""
    while text not in shown:
        shown += os.read(screen, 4096)
