"""Names of nodes are resolved seldom, and one that hangs or is wrong is a node without an address."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from redbox.core.clock import SystemClock
from redbox.jobs.poll import node_addresses
from redbox.jobs.poll.node_addresses import NodeAddresses, resolve_host


async def test_a_name_is_resolved_once() -> None:
    asked = []

    async def resolve(name: str) -> tuple[str, ...]:
        asked.append(name)
        return ("10.1.0.7",)

    addresses = NodeAddresses(SystemClock(), resolve)
    assert [await addresses.of("n1"), await addresses.of("n1")] == [("10.1.0.7",)] * 2
    assert asked == ["n1"]


@pytest.mark.parametrize("error", [OSError("no such name"), UnicodeError("label too long")])
async def test_a_name_that_is_not_resolved_has_no_address(error: Exception) -> None:
    async def resolve(_: str) -> tuple[str, ...]:
        raise error

    assert await NodeAddresses(SystemClock(), resolve).of("n1") == ()


async def test_a_resolver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_addresses, "RESOLVE_S", 0.01)

    async def resolve(_: str) -> tuple[str, ...]:
        await asyncio.Event().wait()
        return ("10.1.0.7",)

    assert await NodeAddresses(SystemClock(), resolve).of("n1") == ()


async def test_names_that_hang_take_no_threads_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        answer.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(node_addresses, "RESOLVE_S", 0.01)
    addresses = NodeAddresses(SystemClock())
    try:
        assert [await addresses.of(f"n{number}") for number in range(40)] == [()] * 40
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(lambda: "done") == "done"
    finally:
        answer.set()


async def test_the_login_nodes_address_to_itself_is_not_a_nodes() -> None:
    assert await resolve_host("127.0.0.1") == ()
    assert await resolve_host("192.0.2.7") == ("192.0.2.7",)
