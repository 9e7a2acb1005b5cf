"""How many workers are out of service in Slurm, by whom. Read from the newest snapshots at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from redbox_hosting.nodeset.drains import DrainOwner, drain_owner
from redbox_hosting.slurm.answers import RestNode

OWNERS = tuple(owner for owner in DrainOwner if owner is not DrainOwner.NOBODY)


def follow_drains(registry: CollectorRegistry, nodes: Callable[[], Iterable[RestNode]]) -> None:
    """`nodes`: those of all workers."""
    gauge = Gauge(
        "redbox_hosting_drained_workers",
        "Workers whose nodes are drained, down or failed in Slurm, by who took them out of service.",
        ("owner",),
        registry=registry,
    )

    def number(owner: DrainOwner) -> float:
        return sum(drain_owner(node) is owner for node in nodes())

    for owner in OWNERS:
        gauge.labels(owner.lower()).set_function(partial(number, owner))
