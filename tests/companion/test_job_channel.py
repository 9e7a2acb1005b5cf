"""What a session or forward of the companion sends of its own accord."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from redbox_companion.streams import frames, job_channel
from redbox_companion.streams.job_channel import TOKEN, JobChannel


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
    remote: Any = SimpleNamespace(socket=ours, received=b"", token=file.read)
    with ours, theirs:
        yield JobChannel(remote)


def sent(channel: JobChannel) -> bytes:
    """The payload of the one short frame that it sends now, if it does."""
    channel.wait(select.poll(), has_unread=False)
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
