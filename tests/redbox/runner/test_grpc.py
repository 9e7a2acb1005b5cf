"""gRPC probes against a real server of gRPC, and against what no server of gRPC would say."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from redbox.runner.program.handlers import HandlerTarget, run_handler

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
ADDRESS = "127.0.0.1"
LONG_NAME = "s" * 200
LIMIT_S = 60
SETTINGS_ACK = bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])
Answer = Callable[[bytes, Any], bytes]


class Health(grpc.GenericRpcHandler):  # type: ignore[misc]
    """grpc.health.v1.Health, by the bytes of its messages."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[bytes] = []

    def service(self, details: Any) -> Any:
        if details.method != "/grpc.health.v1.Health/Check":
            return None
        return grpc.unary_unary_rpc_method_handler(self._check)

    def _check(self, request: bytes, context: Any) -> bytes:
        self.asked.append(request)
        return self._answer(request, context)


@contextmanager
def served(answer: Answer | None) -> Iterator[tuple[int, Health]]:
    """Of a server that has no such service where there is no answer."""
    health = Health(answer or (lambda *_: b""))
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[health] if answer else [])
    port = server.add_insecure_port(f"{ADDRESS}:0")
    server.start()
    try:
        yield port, health
    finally:
        server.stop(None).wait()


@pytest.fixture(autouse=True)
def _the_listener_is_the_jobs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def probe(port: int, service: str = "", limit_s: float = LIMIT_S) -> tuple[bool, str]:
    target = HandlerTarget(None, "/", ADDRESS, lambda: False)
    return run_handler({"grpcPort": port, "grpcService": service}, target, limit_s)


@pytest.mark.parametrize(
    ("message", "result"),
    [
        (SERVING, (True, "")),
        (NOT_SERVING, (False, "service unhealthy (responded with 'NOT_SERVING')")),
        (b"\x08\x03", (False, "service unhealthy (responded with 'SERVICE_UNKNOWN')")),
        (b"", (False, "service unhealthy (responded with 'UNKNOWN')")),
        (b"\x08\x63", (False, "service unhealthy (responded with 'UNKNOWN')")),
    ],
)
def test_the_servers_status_decides(message: bytes, result: tuple[bool, str]) -> None:
    with served(lambda *_: message) as (port, _):
        assert probe(port) == result


@pytest.mark.parametrize(
    ("service", "sent"), [("", b""), ("db", b"\n\2db"), (LONG_NAME, b"\n\xc8\1" + b"s" * 200)]
)
def test_the_service_is_named(service: str, sent: bytes) -> None:
    with served(lambda *_: SERVING) as (port, health):
        assert probe(port, service) == (True, "")
        assert health.asked == [sent]


def test_a_server_without_the_service_and_one_that_refuses_the_call() -> None:
    def refuse(_: bytes, context: Any) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        raise AssertionError

    for answer in (None, refuse):
        with served(answer) as (port, _):
            succeeded, message = probe(port)
            assert (succeeded, "does not answer grpc.health.v1.Health/Check" in message) == (False, True)


def test_a_server_that_hangs_is_left_at_the_time_limit() -> None:
    go_on = threading.Event()

    def hang(*_: object) -> bytes:
        go_on.wait(LIMIT_S)
        return SERVING

    with served(hang) as (port, _):
        assert probe(port, limit_s=0.2) == (False, "timed out after 0.2s")
        go_on.set()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "too large"),
        (b"\0\0\0\7\0\0\0\0\0", "refused the call"),
        (b"\0\0\4\3\0\0\0\0\1" + bytes(4), "refused the call"),
        (b"\0\xff\xff\0\0\0\0\0\1", "too large"),
        (b"\0\0\0\0\1\0\0\0\1", "may not implement it"),
        (b"\0\0\5\0\1\0\0\0\1" + b"\1\0\0\0\0", "may not implement it"),
    ],
)
def test_what_no_server_of_grpc_says(answer: bytes, words: str) -> None:
    succeeded, message = probe_against(answer)
    assert (succeeded, words in message) == (False, True), message


def test_settings_and_pings_are_answered_and_padding_is_dropped() -> None:
    ping = b"\0\0\10\6\0\0\0\0\0" + b"12345678"
    message = bytes([0, 0, 0, 0, 2]) + SERVING
    padded = bytes([3]) + message + bytes(3)
    data = len(padded).to_bytes(3, "big") + bytes([0, 0x9, 0, 0, 0, 1]) + padded
    received: list[bytes] = []
    assert probe_against(b"\0\0\0\4\0\0\0\0\0" + ping + data, received) == (True, "")
    assert SETTINGS_ACK in received[0]
    assert b"\0\0\10\6\1\0\0\0\0" + b"12345678" in received[0]


def test_frames_without_an_end_are_bounded() -> None:
    succeeded, message = probe_against((b"\0\x40\0\0\0\0\0\0\1" + bytes(16384)) * 20)
    assert (succeeded, "too large" in message) == (False, True)


def probe_against(answer: bytes, received: list[bytes] | None = None) -> tuple[bool, str]:
    with socket.create_server((ADDRESS, 0)) as server:

        def serve() -> None:
            connection = server.accept()[0]
            with connection:
                data = connection.recv(65536)
                try:
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while piece := connection.recv(65536):
                        data += piece
                except OSError:  # it has left
                    pass
            if received is not None:
                received.append(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        began = time.monotonic()
        result = probe(server.getsockname()[1])
        thread.join(LIMIT_S)
        assert time.monotonic() - began < LIMIT_S
        return result
