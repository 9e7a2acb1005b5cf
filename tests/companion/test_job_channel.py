"""What a session or forward of the companion sends of its own accord."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from redbox_companion.redbox_client import BlockingClient
from redbox_companion.settings import CompanionSettings
from redbox_companion.streams import frames, job_channel
from redbox_companion.streams.job_channel import STATUS, JobChannel
from redbox_shared.backoff import Backoff
from redbox_shared.wire import PORTS_PROTOCOL
from tests.companion.fakes import ScriptedServer
from tests.companion.harness import Pod


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


class PlainSocket:
    """A socket with what TLS has too."""

    def __init__(self, plain: socket.socket) -> None:
        self._plain = plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def pending(self) -> int:
        return 0


def channel_over(plain: socket.socket, file: TokenFile, renew: Callable[[], bool]) -> JobChannel:
    remote: Any = SimpleNamespace(socket=PlainSocket(plain), received=b"", token=file.read, renew=renew)
    return JobChannel(remote)


def wait(channel: JobChannel) -> None:
    """Once; it sends nothing of its own into the session."""
    channel.wait(select.poll(), has_unread=False, longest_s=0.0)
    assert not channel.held


class Renewals:
    """Requests to red-box, of which the first fails; each is answered once it may be."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Semaphore(0)

    def __call__(self) -> bool:
        self.asked += 1
        is_first = self.asked == 1
        assert self.may_answer.acquire(timeout=60)
        return not is_first


@pytest.mark.timeout(60)
def test_a_renewal_by_request_is_repeated_until_it_succeeds_and_nothing_waits_for_it(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_channel, "RENEW_S", 0.0)
    monkeypatch.setattr(job_channel, "RENEW_BACKOFF", Backoff(0.01, 0.01))
    renewals = Renewals()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = channel_over(ours, file, renewals)
        file.token = None  # cannot be read now
        wait(channel)
        assert renewals.asked == 0
        file.token = "newer"
        wait(channel)
        renewing = channel._renewing
        assert renewing is not None
        wait(channel)
        renewals.may_answer.release(2)
        renewing.join(60)
        wait(channel)
        assert channel._renewing is renewing
        assert renewals.asked == 2


@pytest.mark.timeout(60)
def test_a_session_that_has_ended_is_renewed_no_more(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_channel, "RENEW_S", 0.0)
    renewals = Renewals()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = channel_over(ours, file, renewals)
        file.token = "newer"
        wait(channel)
        channel.close(whole=False)
        renewals.may_answer.release()
        assert channel._renewing is not None
        channel._renewing.join(60)
        assert not channel._renewing.is_alive()
        assert renewals.asked == 1


def test_a_stream_is_renewed_by_a_request_with_the_newest_token(pod: Pod, redbox: ScriptedServer) -> None:
    client = BlockingClient(CompanionSettings(pod.environ))
    remote = client.upgrade("/v1/jobs/k1/ports", {"attempt": 1}, PORTS_PROTOCOL)
    try:
        redbox.tokens.clear()
        (pod.folder / "token").write_text("newer")
        assert remote.renew()
        redbox.failures = [503]
        assert not remote.renew()
        redbox.strange = [b"no HTTP"]
        assert not remote.renew()
        assert redbox.asked[1:] == [("POST", "/v1/streams/the-id/renew?")] * 3
        assert redbox.tokens == {"Bearer newer"}
    finally:
        remote.socket.close()


def test_the_status_of_a_red_box_that_reads_no_more_is_still_read(file: TokenFile) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = channel_over(ours, file, lambda: True)
        status = bytes((STATUS,)) + b"{}"
        theirs.sendall(bytes((frames.FINAL | frames.BINARY, len(status))) + status)
        theirs.shutdown(socket.SHUT_RD)
        channel.send(0, b"input that has no reader")
        channel.flush()
        assert not channel.held
        assert list(channel.read()) == [(STATUS, b"{}")]
