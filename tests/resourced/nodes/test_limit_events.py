"""Partitions that get no virtual node are reported once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from redbox_kube.api.objects import ApiUnreachable, Object, ResourcePath
from redbox_resourced.nodes.limit_events import NodeLimitEvents, limit_event
from tests.resourced.factories import slurm_cluster

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Kubernetes:
    """Takes events, or is away."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Object]] = []
        self.is_away = False

    async def create(self, where: ResourcePath, body: Object) -> Object:
        if self.is_away:
            raise ApiUnreachable("away")
        self.events.append((where.namespace, body))
        return body


@pytest.fixture
def kubernetes() -> Kubernetes:
    return Kubernetes()


@pytest.fixture
def events(kubernetes: Kubernetes) -> NodeLimitEvents:
    return NodeLimitEvents(cast("Any", kubernetes))


async def test_the_slurm_cluster_has_an_event_that_says_what_to_do(
    events: NodeLimitEvents, kubernetes: Kubernetes
) -> None:
    await events.report(slurm_cluster(), 3, 20)
    [(namespace, event)] = kubernetes.events
    assert namespace == "default"
    assert event["involvedObject"]["name"] == "hpc1"
    assert event["message"].startswith("3 of its partitions have no virtual node")
    assert "resourced.virtualNodes" in event["message"]


async def test_the_same_is_not_reported_again_and_another_number_is(
    events: NodeLimitEvents, kubernetes: Kubernetes
) -> None:
    for number in (3, 3, 3, 4):
        await events.report(slurm_cluster(), number, 20)
    assert [event["message"][0] for _, event in kubernetes.events] == ["3", "4"]


async def test_nothing_is_reported_where_all_have_a_node(
    events: NodeLimitEvents, kubernetes: Kubernetes
) -> None:
    await events.report(slurm_cluster(), 0, 20)
    assert kubernetes.events == []


async def test_an_event_that_cannot_be_written_stops_nothing(
    events: NodeLimitEvents, kubernetes: Kubernetes
) -> None:
    kubernetes.is_away = True
    await events.report(slurm_cluster(), 3, 20)


def test_an_hour_later_it_is_another_event() -> None:
    first, second, third = (
        limit_event(slurm_cluster(), 3, 20, NOON.replace(hour=hour, minute=minute)).name
        for hour, minute in ((12, 0), (12, 59), (13, 0))
    )
    assert first == second != third
