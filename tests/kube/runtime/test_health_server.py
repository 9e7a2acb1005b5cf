"""Answers to the kubelet and to Prometheus."""

from __future__ import annotations

import httpx
from prometheus_client import CollectorRegistry, Counter

from redbox_kube.runtime.health_server import serving


async def test_trouble_is_told_in_its_words_and_by_the_status() -> None:
    trouble: list[str] = ["the first look at all objects is not over"]
    async with (
        serving(
            0, CollectorRegistry(), unready=lambda: trouble[0] if trouble else None, address="127.0.0.1"
        ) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert (await client.get("/healthz")).status_code == 200
        unready = await client.get("/readyz")
        assert (unready.status_code, unready.text) == (503, "the first look at all objects is not over\n")
        trouble.clear()
        assert (await client.get("/readyz")).text == "ok\n"


async def test_metrics_are_served_in_prometheus_words() -> None:
    registry = CollectorRegistry()
    Counter("patches", "Patches.", registry=registry).inc(3)
    async with (
        serving(0, registry, unready=lambda: None, address="127.0.0.1") as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/metrics")
    assert "patches_total 3.0" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")
