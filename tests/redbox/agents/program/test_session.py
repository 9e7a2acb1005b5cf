"""Threads of the agent, which stay for further requests."""

from __future__ import annotations

import io
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from redbox.agents.program.session import MAX_REQUESTS, Session, WorkerStream
from redbox.agents.program.wire import (
    CREDIT,
    DATA,
    DONE,
    END,
    FAILED,
    PREFIX,
    REQUEST,
    frame_cost,
    read_frame,
)

SOON_S = 60


class Secret:
    """Part of a request."""


@pytest.fixture
def answers() -> Any:
    """Both ends of the agent's stdout."""
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb") as source:
        yield source, writes
        os.close(writes)


def session_of(writes: int, operation: Callable[[WorkerStream], dict[str, Any]]) -> Session:
    return Session(io.BytesIO(), writes, {"work": operation})


def test_an_idle_thread_keeps_nothing_of_its_requests(answers: tuple[Any, int]) -> None:
    source, writes = answers
    session = session_of(writes, lambda stream: {"number": stream.number})
    for number in (1, 2, 3):
        secret, gone = Secret(), threading.Event()
        weakref.finalize(secret, gone.set)
        session._dispatch(REQUEST, number, {"op": "work", "secret": secret}, b"")
        del secret
        assert read_frame(source)[0] == DONE
        assert gone.wait(SOON_S)


def test_no_more_threads_than_requests_that_were_under_way_at_once(answers: tuple[Any, int]) -> None:
    """Requests of a home that hangs take all threads, and once it answers these serve what comes next."""
    source, writes = answers
    served: set[int] = set()
    home_answers = threading.Event()

    def work(stream: WorkerStream) -> dict[str, Any]:
        home_answers.wait(SOON_S)
        served.add(threading.get_ident())
        return {"number": stream.number}

    session = session_of(writes, work)
    for number in range(MAX_REQUESTS + 1):
        session._dispatch(REQUEST, number, {"op": "work"}, b"")
    kind, refused, header, _ = read_frame(source)
    assert (kind, refused, header["kind"]) == (FAILED, MAX_REQUESTS, "busy")
    home_answers.set()
    assert {read_frame(source)[1] for _ in range(MAX_REQUESTS)} == set(range(MAX_REQUESTS))
    for number in range(1000, 1000 + 4 * MAX_REQUESTS):
        session._dispatch(REQUEST, number, {"op": "work"}, b"")
        assert read_frame(source)[:2] == (DONE, number)
    assert len(served) == MAX_REQUESTS


def test_at_the_users_limit_of_processes_a_request_is_refused_and_the_agent_serves_on(
    answers: tuple[Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, writes = answers
    session = session_of(writes, lambda stream: {"number": stream.number})

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", start)
        session._dispatch(REQUEST, 1, {"op": "work"}, b"")
    kind, number, header, _ = read_frame(source)
    assert (kind, number, header["kind"]) == (FAILED, 1, "busy")
    assert "ulimit -u" in header["message"]
    session._dispatch(REQUEST, 2, {"op": "work"}, b"")
    assert read_frame(source)[:2] == (DONE, 2)


def test_a_request_whose_operation_fails_in_any_way_is_answered_and_leaves_its_place(
    answers: tuple[Any, int],
) -> None:
    """A directory deeper than Python recurses, for one: its requests took all places."""
    source, writes = answers

    def work(_: WorkerStream) -> dict[str, Any]:
        raise RecursionError("maximum recursion depth exceeded")

    session = session_of(writes, work)
    for number in range(MAX_REQUESTS + 1):
        session._dispatch(REQUEST, number, {"op": "work"}, b"")
        kind, answered, header, _ = read_frame(source)
        assert (kind, answered, header["kind"]) == (FAILED, number, "request")
        assert "RecursionError" in header["message"]


def test_input_is_granted_again_for_many_frames_at_once(answers: tuple[Any, int]) -> None:
    source, writes = answers

    def work(stream: WorkerStream) -> dict[str, Any]:
        return {"size": sum(len(data) for data in iter(stream.receive, b""))}

    session = session_of(writes, work)
    session._dispatch(REQUEST, 1, {"op": "work"}, b"")
    piece = bytes(64 * 1024)
    for _ in range(9):
        session._dispatch(DATA, 1, {}, piece)
    session._dispatch(END, 1, {}, b"")
    kind, _, header, _ = read_frame(source)
    assert (kind, header) == (CREDIT, {"bytes": 8 * frame_cost(b"", piece)})
    kind, _, header, _ = read_frame(source)
    assert (kind, header) == (DONE, {"size": 9 * len(piece)})


@pytest.mark.parametrize(
    "frame",
    [
        PREFIX.pack(REQUEST, 1, 2, 0) + b"{}",
        PREFIX.pack(CREDIT, 1, 2, 0) + b"{}",
        PREFIX.pack(CREDIT, 1, 15, 0) + b'{"bytes":1e400}',
        PREFIX.pack(CREDIT, 1, 2, 0) + b"[]",
        PREFIX.pack(CREDIT, 1, 100_000, 0) + b"[" * 100_000,
    ],
)
def test_a_frame_that_no_server_sends_is_the_end_of_the_session(
    answers: tuple[Any, int], frame: bytes
) -> None:
    """The request that is under way is cancelled, and nothing else fails."""
    begun = PREFIX.pack(REQUEST, 1, 14, 0) + b'{"op": "work"}'
    cancelled = threading.Event()

    def work(stream: WorkerStream) -> dict[str, Any]:
        try:
            stream.receive()
        finally:
            cancelled.set()
        return {}

    Session(io.BytesIO(begun + frame), answers[1], {"work": work}).serve()
    assert cancelled.wait(SOON_S)
