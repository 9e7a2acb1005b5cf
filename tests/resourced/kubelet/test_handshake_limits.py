"""Who begins a handshake, who waits for it, and who gives way."""

from __future__ import annotations

import asyncio

from redbox_resourced.kubelet.handshake_limits import HandshakeLimits


class Connection:
    """One that never says anything."""

    def __init__(self, handshakes: HandshakeLimits, address: str) -> None:
        self.has_begun = False
        self.task = asyncio.create_task(self._run(handshakes, address))

    async def _run(self, handshakes: HandshakeLimits, address: str) -> None:
        async with handshakes.slot(address):
            self.has_begun = True
            await asyncio.Event().wait()


async def opened(handshakes: HandshakeLimits, *addresses: str) -> list[Connection]:
    connections = [Connection(handshakes, address) for address in addresses]
    await settled()
    return connections


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def ended(*connections: Connection) -> None:
    for connection in connections:
        connection.task.cancel()
    await asyncio.wait({connection.task for connection in connections})
    await settled()


async def test_an_address_has_its_share_and_its_next_ones_wait_for_it() -> None:
    handshakes = HandshakeLimits(at_once_per_address=2)
    first, second, third, other = await opened(handshakes, "a", "a", "a", "b")
    assert [connection.has_begun for connection in (first, second, third, other)] == [True, True, False, True]
    await ended(second)
    assert third.has_begun
    await ended(first, third, other)


async def test_where_all_are_too_many_the_first_gives_way() -> None:
    connections = await opened(HandshakeLimits(at_once=2), "a", "b", "c")
    assert [connection.task.done() for connection in connections] == [True, False, False]
    assert connections[2].has_begun
    await ended(*connections)


async def test_of_those_who_wait_the_first_gives_way_and_who_has_begun_goes_on() -> None:
    handshakes = HandshakeLimits(at_once_per_address=1, max_waiting=2)
    connections = await opened(handshakes, "a", "a", "a", "a")
    assert [connection.task.done() for connection in connections] == [False, True, False, False]
    await ended(connections[0])
    assert [connection.has_begun for connection in connections] == [True, False, True, False]
    await ended(*connections)


async def test_an_address_without_connections_is_forgotten() -> None:
    handshakes = HandshakeLimits()
    await ended(*await opened(handshakes, "a", "b"))
    assert not handshakes._per_address
