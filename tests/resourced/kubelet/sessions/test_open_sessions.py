"""How many sessions may be open: of all, of one namespace, of one pod."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from redbox_resourced.kubelet.sessions import open_sessions
from redbox_resourced.kubelet.sessions.open_sessions import OpenSessions
from redbox_resourced.kubelet.shares import TooManyOpen


def pod(namespace: str, uid: str) -> Any:
    return SimpleNamespace(namespace=namespace, uid=uid)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> OpenSessions:
    monkeypatch.setattr(open_sessions, "MOST_SESSIONS", 8)
    monkeypatch.setattr(open_sessions, "MOST_OF_POD", 1)
    return OpenSessions()


def test_a_namespace_has_a_quarter_and_leaves_the_rest_to_others(opened: OpenSessions) -> None:
    with ExitStack() as stack:
        for uid in ("a1", "a2"):
            stack.enter_context(opened.opened(pod("alice", uid)))
        with pytest.raises(TooManyOpen, match="2 sessions of namespace alice are open now"):
            stack.enter_context(opened.opened(pod("alice", "a3")))
        stack.enter_context(opened.opened(pod("bob", "b1")))
    with opened.opened(pod("alice", "a3")):
        pass
    assert opened.sessions.now == {}


def test_all_together_are_bounded(opened: OpenSessions) -> None:
    with ExitStack() as stack:
        for number in range(8):
            stack.enter_context(opened.opened(pod(f"n{number}", f"p{number}")))
        with pytest.raises(TooManyOpen, match="8 sessions are open now"):
            stack.enter_context(opened.opened(pod("another", "p")))


def test_a_pod_has_so_many_and_its_refusals_count_for_nothing(opened: OpenSessions) -> None:
    with opened.opened(pod("alice", "a1")) as interrupt:
        for _ in range(3):
            with (
                pytest.raises(TooManyOpen, match="1 sessions of this pod"),
                opened.opened(pod("alice", "a1")),
            ):
                pass
        assert opened.sessions.now == {"alice": 1}
        opened.end(pod("alice", "a1"), "the pod was deleted")
        assert interrupt.happened.is_set()
