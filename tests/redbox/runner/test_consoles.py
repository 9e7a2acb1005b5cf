"""Containers with stdin or a terminal: real processes and a real pty, at a real runner's socket."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from redbox.node.program import attachments, outputs
from redbox.node.program.attachments import (
    ATTACH_BYTES,
    ATTACH_END,
    ATTACH_HELLO,
    ATTACH_INPUT,
    ATTACH_SIZE,
    ATTACH_STDERR,
    ATTACH_STDOUT,
)
from redbox.node.program.outputs import OutputHistory, OutputLost
from tests.redbox.runner.harness import LIMIT_S, Node, Run, container, end_of, reasons, state_of

ENDED = {"code": 0}
open_clients: list[Client] = []


class Client:
    """A connection to the socket of a container, as a relay's."""

    def __init__(self, run: Run, name: str = "a", *, stdin: bool = True, **more: Any) -> None:
        (path,) = run.scratch.glob(f"*/{attachments.ATTACH_FOLDER}/{name}")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(LIMIT_S)
        open_clients.append(self)
        folder = os.open(path.parent, os.O_RDONLY)
        self.socket.connect(f"/proc/self/fd/{folder}/{name}")
        os.close(folder)
        self.send(ATTACH_HELLO, json.dumps({"stdin": stdin, **more}).encode())

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self.socket.send(kind + content)

    def type(self, text: bytes) -> None:
        self.send(ATTACH_INPUT, text)

    def read_until(self, wanted: bytes, channel: bytes = ATTACH_STDOUT) -> bytes:
        found = b""
        while wanted not in found:
            message = self.socket.recv(ATTACH_BYTES + 1)
            assert message[:1] == channel, (found, message)
            found += message[1:]
        return found

    def rest(self) -> tuple[bytes, dict[str, Any]]:
        """The remaining output, of both streams, and how it ended."""
        found = b""
        while (message := self.socket.recv(ATTACH_BYTES + 1))[:1] != ATTACH_END:
            assert message, found
            found += message[1:]
        self.socket.close()
        return found, json.loads(message[1:])


@contextmanager
def started(node: Node, script: str, **more: Any) -> Iterator[Run]:
    pod = {name: more.pop(name) for name in ("restartPolicy",) if name in more}
    run = node.start(containers=[container("a", script, **more)], terminationGraceS=0, **pod)
    try:
        run.wait_for(lambda report: state_of(report, "a").state.running is not None)
        yield run
    finally:
        while open_clients:
            open_clients.pop().socket.close()
        if run.process.poll() is None:
            run.delete()
            run.process.wait(LIMIT_S)


def test_input_reaches_the_process_and_its_end_is_the_clients(node: Node) -> None:
    with started(node, "echo ready; cat; echo over >&2", stdin=True, stdinOnce=True) as run:
        client = Client(run)
        assert client.read_until(b"\n") == b"ready\n"  # written before anyone was there
        client.type(b"one\n")
        client.read_until(b"one\n")
        client.type(b"")
        assert client.read_until(b"\n", ATTACH_STDERR) == b"over\n"
        assert client.rest() == (b"", ENDED)
        assert end_of(run.wait(), "a") == (0, "Completed")
        assert run.log("a") == "ready\none\nover\n"


def test_a_client_that_vanishes_ends_a_stdin_once(node: Node) -> None:
    with started(node, "cat", stdin=True, stdinOnce=True) as run:
        client = Client(run)
        client.type(b"one\n")
        client.read_until(b"one\n")  # nothing else is under way
        client.socket.close()
        assert end_of(run.wait(), "a") == (0, "Completed")
        assert run.log("a") == "one\n"


def test_stdin_stays_open_from_one_client_to_the_next(node: Node) -> None:
    with started(node, "read x; read y; echo $x $y; exec sleep 60", stdin=True) as run:
        first = Client(run)
        first.type(b"one\n")
        first.type(b"")
        assert first.rest() == (b"", ENDED)  # detached, as by a kubelet
        second = Client(run)
        second.type(b"two\n")
        second.read_until(b"one two\n")


def test_each_of_two_clients_sees_all_output_and_both_may_type(node: Node) -> None:
    with started(node, "while read x; do echo got $x; done", stdin=True) as run:
        clients = Client(run), Client(run)
        watcher = Client(run, stdin=False)
        watcher.type(b"no\n")
        for number, typing in enumerate(clients):
            typing.type(b"%d\n" % number)
            for each in (*clients, watcher):
                assert each.read_until(b"\n") == b"got %d\n" % number


def test_a_terminal_has_its_size_ctrl_c_and_one_stream_in_the_log(node: Node) -> None:
    script = "trap 'echo stopped' INT; trap 'stty size' WINCH; tty; while :; do read x || :; echo [$x]; done"
    with started(node, script, stdin=True, stdinOnce=True, tty=True) as run:
        client = Client(run, size={"columns": 101, "rows": 33})
        assert b"/dev/pts/" in client.read_until(b"\r\n")
        client.type(b"word\r")
        client.read_until(b"[word]\r\n")
        client.send(ATTACH_SIZE, b'{"columns": 90, "rows": 30}')
        client.read_until(b"30 90\r\n")
        client.type(b"\x03")
        client.read_until(b"stopped\r\n")
        client.socket.close()
        again = Client(run, size={"columns": 90, "rows": 30})
        again.read_until(b"30 90\r\n")  # it is made to draw again
        again.type(b"more\r")
        again.read_until(b"[more]\r\n")
        again.type(b"")
        assert again.rest()[1] == ENDED  # the process lives on
        Client(run).type(b"last\r")
        run_log = until(lambda: run.log("a") if "[last]" in run.log("a") else "")
        assert "word\n" in run_log
        assert "[word]\n" in run_log


def until(found: Any) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while not (value := found()):
        assert time.monotonic() < deadline
        os.sched_yield()
    return value


def test_a_terminal_without_stdin_takes_no_keys(node: Node) -> None:
    with started(node, "tty; echo $TERM; exec sleep 60", tty=True) as run:
        until(lambda: "xterm\n" in run.log("a"))
        client = Client(run)
        client.type(b"\x03")
        client.type(b"")
        client.send(ATTACH_SIZE, b'{"columns": 90, "rows": 30}')
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        assert state_of(run.reports()[-1], "a").state.running is not None


def test_no_client_and_no_stalled_client_holds_up_the_container(node: Node) -> None:
    lines = 400_000
    script = f"read x; seq {lines}; echo done >&2; read y"
    with started(node, script, stdin=True) as run:
        stalled, typing = Client(run), Client(run)
        typing.type(b"go\n")
        until(lambda: run.log("a").endswith("done\n"))
        typing.type(b"end\n")
        found, ended = stalled.rest()  # it is served from the log, whole
        assert (found.decode(), ended) == (run.log("a"), ENDED)


def test_a_client_that_reads_nothing_does_not_hold_up_the_end(node: Node) -> None:
    with started(node, "read x; seq 400000", stdin=True) as run:
        stalled = Client(run)
        stalled.type(b"go\n")
        assert end_of(run.wait(), "a") == (0, "Completed")


def test_a_restarted_container_is_attached_to_again(node: Node) -> None:
    with started(node, "read x; echo $x; exit 1", stdin=True, restartPolicy="OnFailure") as run:
        first = Client(run)
        first.type(b"one\n")
        assert first.rest() == (b"one\n", ENDED)
        run.wait_for(
            lambda report: (
                state_of(report, "a").restart_count == 1 and state_of(report, "a").state.running is not None
            )
        )
        second = Client(run)
        second.type(b"two\n")
        assert second.rest() == (b"two\n", ENDED)
        assert (run.log("a", 0), run.log("a", 1)) == ("one\n", "two\n")


def test_a_stranger_to_the_protocol_is_disconnected(node: Node) -> None:
    with started(node, "cat", stdin=True) as run:
        sizes = (b'{"columns": "x"}', b'{"columns": []}', b'{"columns": 1e400}')
        for message in (b"{", b"[]", b"\xff", *sizes, b"[" * 10_000):
            client = Client(run)
            client.send(ATTACH_SIZE, message)
            assert client.socket.recv(10) == b"", message
        client = Client(run, size=["nonsense"])
        assert client.socket.recv(10) == b""
        good = Client(run)
        good.type(b"still here\n")
        good.read_until(b"still here\n")


def test_only_its_user_reaches_the_socket(node: Node) -> None:
    with started(node, "cat", stdin=True) as run:
        (path,) = run.scratch.glob(f"*/{attachments.ATTACH_FOLDER}/a")
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (path.parent.parent, path.parent, path)]
        assert modes == [0o700, 0o700, 0o600]


def test_a_log_that_cannot_be_written_stops_nothing_and_its_gap_is_an_end() -> None:
    history = OutputHistory(os.open("/dev/full", os.O_RDWR))
    data = os.urandom(outputs.RECENT_BYTES)
    for _ in range(3):
        for start in range(0, len(data), ATTACH_BYTES):
            history.append(ATTACH_STDOUT, data[start : start + ATTACH_BYTES])
    assert history.end == 3 * len(data)
    assert history.read(history.end - 10) == (ATTACH_STDOUT, data[-10:])
    with pytest.raises(OutputLost):
        history.read(0)


def test_many_small_pieces_have_a_bound() -> None:
    history = OutputHistory(os.open("/dev/null", os.O_RDWR))
    for number in range(10 * outputs.RECENT_PIECES):
        history.append((ATTACH_STDOUT, ATTACH_STDERR)[number % 2], b"x")
    assert history.end - history.start == outputs.RECENT_PIECES


def test_a_start_that_fails_leaves_the_console_of_the_start_before_alone(node: Node) -> None:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    more = {"ports": [taken.getsockname()[1]], "restartPolicy": "OnFailure"}
    with taken, started(node, "read x; exit 3", stdin=True, tty=True, **more) as run:
        taken.listen()
        Client(run).type(b"\n")
        report = run.wait_for(lambda report: "BackOff" in reasons(report, "a"))
        failed = state_of(report, "a").last_state.terminated
        assert failed is not None
        assert (failed.reason, failed.exit_code) == ("PortInUse", 128)
