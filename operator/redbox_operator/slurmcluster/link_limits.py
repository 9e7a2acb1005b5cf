"""How much of one red-box the operator holds at once.

The red-box of a SlurmCluster is an administrator's, who vouches for it. What answers at a SlurmEndpoint is
chosen by users of its namespace, and the operator's memory serves all: so its answers and rows are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from redbox_api.feed import PAGE_ITEMS
from redbox_api.limits.answer_limits import AnswerLimits
from redbox_api.limits.answer_memory import AnswerMemory, CommonMemory
from redbox_api.limits.time_share import CommonShare, TimeShare
from redbox_clusters.slurm_cluster import SlurmCluster


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Of one link; rows are counted in bytes as JSON: packed, a row of 64 MiB has 64 KiB."""

    calls: int
    calls_of_a_namespace: int
    page_items: int
    answer: AnswerLimits
    """Of one answer or event."""
    rows: float
    row_bytes: float
    bytes: float
    """Of all rows."""
    listed: float
    """Rows of a list, those that are not kept included: it may have no end."""
    changes_of_a_job: tuple[int, float] | None = None
    """So many at once and then one in some seconds have the SlurmJob reconciled: each may be a write."""
    changes: tuple[int, float] | None = None
    """The same of all its jobs."""


OF_CLUSTERS = LinkLimits(8, 2, PAGE_ITEMS, AnswerLimits(), inf, inf, inf, inf)
OF_ENDPOINTS = LinkLimits(
    calls=2,
    calls_of_a_namespace=2,  # they all are of one
    page_items=100,
    answer=AnswerLimits(  # as objects thirty times as much: 64 MiB would be 1.9 GiB
        longest=2 * 1024 * 1024,
        values=256 * 1024,  # 100 jobs on 2,500 nodes each
        containers=8 * 1024,  # 100 jobs with 80 each, or 2,048 partitions
    ),
    rows=10_000,
    row_bytes=64 * 1024,
    bytes=8 * 1024 * 1024,
    listed=20_000,
    changes_of_a_job=(10, 2.0),
    changes=(1_000, 0.02),
)


OF_ONE_ENDPOINT, SAVED_S = 0.05, 0.25
"""Seconds of the event loop's time in each second: some 500 events."""
OF_ALL_ENDPOINTS = CommonShare(0.25)
"""Of those that are over their own share; the others are not concerned."""


MEMORY_OF_ALL_ENDPOINTS = CommonMemory(128 * 1024 * 1024, "SlurmEndpoints")
"""A quarter of the operator's limit in the chart."""


def share_of(cluster: SlurmCluster) -> TimeShare:
    """Of the event loop's time, which all links have to share."""
    return TimeShare(OF_ONE_ENDPOINT, SAVED_S, OF_ALL_ENDPOINTS) if cluster.namespace else TimeShare()


def memory_of(cluster: SlurmCluster) -> AnswerMemory:
    """Of answers under way: the SlurmEndpoints of a namespace have one part."""
    return AnswerMemory(MEMORY_OF_ALL_ENDPOINTS, cluster.namespace) if cluster.namespace else AnswerMemory()


def limits_of(cluster: SlurmCluster) -> LinkLimits:
    return OF_ENDPOINTS if cluster.namespace else OF_CLUSTERS
