"""Commands that cannot be started: a status says so, and the relay keeps nothing of them."""

from __future__ import annotations

import errno
import os
import selectors
from pathlib import Path

import pytest

from redbox.relay.program import frames, streams
from redbox.relay.program.streams import CommandStream

DOCUMENT = {
    "kind": "command",
    "job": "7",
    "command": ["true"],
    "tty": False,
    "stdin": True,
    "container": None,
}


def count_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def status_of(document: dict[str, object]) -> dict[str, object]:
    sent: list[tuple[int, int, bytes]] = []
    stream = CommandStream(1, lambda *frame: sent.append(frame), document)
    while not stream.is_over:
        with selectors.PollSelector() as selector:
            for descriptor, events in stream.interests():
                selector.register(descriptor, events)
            for key, ready in selector.select(10):
                stream.ready(key.fd, ready)
    leader = stream.group()
    if leader is not None:
        os.waitpid(leader, 0)
    assert [kind for kind, _, _ in sent] == [frames.DATA, frames.STATUS]
    status = frames.read_report(sent[1][2])
    channel = frames.STDOUT if document["tty"] else frames.STDERR
    assert sent[0][2] == bytes([channel]) + f"redbox: {status['message']}\r\n".encode()
    return status


@pytest.mark.parametrize("stdin", [True, False])
@pytest.mark.parametrize("pipes", [0, 1, 2, 3])
def test_a_relay_without_descriptors_keeps_none(
    monkeypatch: pytest.MonkeyPatch,
    pipes: int,
    stdin: bool,  # noqa: FBT001
) -> None:
    opened = [os.pipe() for _ in range(pipes)]

    def pipe() -> tuple[int, int]:
        if not opened:
            raise OSError(errno.EMFILE, "Too many open files")
        return opened.pop()

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", pipe)
        before = count_descriptors()
        status = status_of({**DOCUMENT, "stdin": stdin})
    assert status["code"] == streams.CANNOT_EXECUTE
    assert "Too many open files" in str(status["message"])
    assert count_descriptors() == before - 2 * pipes


@pytest.mark.parametrize("tty", [True, False])
def test_a_session_that_cannot_be_prepared_ends_alone(monkeypatch: pytest.MonkeyPatch, tty: bool) -> None:  # noqa: FBT001
    def fail() -> None:
        raise RuntimeError

    monkeypatch.setattr(streams, "prepare_session", fail)
    before = count_descriptors()
    assert status_of({**DOCUMENT, "tty": tty})["code"] == streams.CANNOT_EXECUTE
    assert count_descriptors() == before


def test_a_node_without_a_free_terminal_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def openpty() -> tuple[int, int]:
        raise OSError("out of pty devices")

    monkeypatch.setattr("os.openpty", openpty)
    status = status_of({**DOCUMENT, "tty": True})
    assert status == {"code": streams.CANNOT_EXECUTE, "message": "true: out of pty devices"}
