"""When a token for red-box is renewed."""

from __future__ import annotations

import pytest

from redbox_clusters import redbox_token
from redbox_clusters.redbox_token import RedboxToken, ServiceAccountName
from tests.kube.fakes import FakeApiServer

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("uptime_s", "wall_s", "issued"),
    [
        (60.0, 60.0, 1),
        (0.7 * HOUR_S, 0.7 * HOUR_S, 2),
        (60.0, 9 * HOUR_S, 2),  # the host slept, or its clock was set
        (60.0, -9 * HOUR_S, 1),
        (0.7 * HOUR_S, -9 * HOUR_S, 2),
    ],
)
async def test_a_token_is_renewed_before_it_ends_by_any_clock(
    monkeypatch: pytest.MonkeyPatch, uptime_s: float, wall_s: float, issued: int
) -> None:
    api = FakeApiServer()
    token = RedboxToken(
        api.client, ServiceAccountName("redbox-system", "redbox-operator"), "redbox.dev/hpc1/1"
    )
    clocks = (1000.0, 1_800_000_000.0)
    monkeypatch.setattr(redbox_token, "_clocks", lambda: clocks)
    await token()
    await token()
    assert len(api.token_lifetimes) == 1
    clocks = (clocks[0] + uptime_s, clocks[1] + wall_s)
    await token()
    assert len(api.token_lifetimes) == issued
