"""kubectl exec whose reader pauses, as a pager does."""

from __future__ import annotations

import asyncio

import pytest

from tests.resourced.kubelet.sessions.harness import SUCCESS, RedboxSide, kubelet_api
from tests.resourced.kubelet.spdy.harness import ping


async def test_a_client_that_pauses_before_the_last_bytes_gets_them_and_the_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `kubectl exec ... | less`, with the PINGs of kubectl."""
    monkeypatch.setattr("redbox_resourced.kubelet.spdy.upgrade.LEAVE_S", 0.1)
    count = 3_000_000
    has_ended = asyncio.Event()

    async def flood(side: RedboxSide) -> None:
        for _ in range(count // 30_000):
            await side.send(1, bytes(30_000))
        await side.end(SUCCESS)
        has_ended.set()

    async with kubelet_api() as stand:
        stand.redbox.script = flood
        client = await stand.exec("cat", "large")
        await has_ended.wait()
        for number in (1, 3, 5):
            await asyncio.sleep(0.3)
            client.send(ping(number))
        await client.rest()
        assert (len(client.text("stdout")), client.final_status) == (count, SUCCESS)
        client.writer.close()
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_over_tls_a_client_that_pauses_while_output_waits_keeps_its_session() -> None:
    """A PING of kubectl, too, whose answer waits behind that output, is no reason to end it."""
    pieces, piece = 800, bytes(32_768)  # more than the buffers of a connection hold

    async def flood(side: RedboxSide) -> None:
        for _ in range(pieces):
            await side.send(1, piece)
        await side.end(SUCCESS)

    async with kubelet_api(tls=True) as stand:
        stand.redbox.script = flood
        client = await stand.exec("cat", "large")
        for number in (1, 3):
            await asyncio.sleep(0.7)
            client.send(ping(number))
        await client.rest()
        assert (len(client.text("stdout")), client.final_status) == (pieces * len(piece), SUCCESS)
