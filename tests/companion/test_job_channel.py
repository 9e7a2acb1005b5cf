"""What a session or forward of the companion sends of its own accord."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from redbox_companion.streams import frames, job_channel
from redbox_companion.streams.job_channel import STATUS, TOKEN, JobChannel


class TokenFile:
    """The kubelet's, which it replaces."""

    def __init__(self) -> None:
        self.token: str | None = "first"

    def read(self) -> str:
        if self.token is None:
            raise OSError
        return self.token


@pytest.fixture
def file() -> TokenFile:
    return TokenFile()


@pytest.fixture
def channel(file: TokenFile, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobChannel]:
    """Which looks for a newer token each time that it waits."""
    monkeypatch.setattr(job_channel, "RENEW_S", 0.0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield channel_over(ours, file)


class PlainSocket:
    """A socket with what TLS has too."""

    def __init__(self, plain: socket.socket) -> None:
        self._plain = plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def pending(self) -> int:
        return 0


def channel_over(plain: socket.socket, file: TokenFile) -> JobChannel:
    remote: Any = SimpleNamespace(socket=PlainSocket(plain), received=b"", token=file.read)
    return JobChannel(remote)


def sent(channel: JobChannel) -> bytes:
    """The payload of the one short frame that it sends now, if it does."""
    channel.wait(select.poll(), has_unread=False, longest_s=0.0)
    frame = bytes(channel.held)
    channel.held.clear()
    return frames.masked(frame[6:], frame[2:6]) if frame else b""


def test_a_newer_token_is_sent_once(channel: JobChannel, file: TokenFile) -> None:
    assert sent(channel) == b""
    file.token = "newer"
    assert sent(channel) == bytes((TOKEN,)) + b"newer"
    assert sent(channel) == b""


def test_a_token_that_cannot_be_read_now_is_sent_later(channel: JobChannel, file: TokenFile) -> None:
    file.token = None
    assert sent(channel) == b""
    file.token = "newer"
    assert sent(channel) == bytes((TOKEN,)) + b"newer"


def test_the_status_of_a_red_box_that_reads_no_more_is_still_read(file: TokenFile) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = channel_over(ours, file)
        status = bytes((STATUS,)) + b"{}"
        theirs.sendall(bytes((frames.FINAL | frames.BINARY, len(status))) + status)
        theirs.shutdown(socket.SHUT_RD)
        channel.send(0, b"input that has no reader")
        channel.flush()
        assert not channel.held
        assert list(channel.read()) == [(STATUS, b"{}")]
