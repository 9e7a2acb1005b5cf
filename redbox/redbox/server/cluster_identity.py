"""Slurm's name of its cluster, which marks contain: from Slurm, or from the journal while Slurm is away.

A server that starts while Slurm is away serves the states in its journal, and answers submits with 503. One
without a cluster name can neither submit nor recognise jobs, and answers every request with 503 until Slurm
answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import TypeVar

import structlog

from redbox.callers.connection_limits import ConnectionLimiter
from redbox.core.workload_manager import WorkloadManager, WorkloadManagerError
from redbox.http.middleware.slurm_not_ready import slurm_not_ready
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.sqlite import JournalBatch
from redbox.server.listeners import open_listeners
from redbox.server.systemd import notify_ready
from redbox.settings import RedboxSettings

log = structlog.get_logger(__name__)
RETRY_S = 2.0
LOG_EVERY_S = 30.0
FIRST_WAIT_S = 5.0  # before a start without Slurm begins to answer requests
FACT = "Slurm's name of the cluster"
T = TypeVar("T")
Query = Callable[[], Awaitable[T]]


async def cluster_name(settings: RedboxSettings, workload: WorkloadManager, journal: Journal) -> str:
    """Return the name and store it for the next start; if it was never stored, wait for Slurm."""
    stored = journal.contents.facts.get(FACT) if journal.contents else None
    if stored is None:
        name = (await wait_for_slurm(workload.cluster, settings)).name
    else:
        cluster = await try_for_a_while(workload.cluster)
        name = cluster.name if cluster else stored
    if name != stored:
        journal.commit(JournalBatch(facts=((FACT, name),)), lambda _: None)
    return name


async def wait_for_slurm(query: Query[T], settings: RedboxSettings) -> T:
    """Return Slurm's answer; while it is away or slow, answer requests with 503."""
    result = await try_for_a_while(query)
    if result is not None:
        return result
    async with serving_not_ready(settings):
        return await _retry(query)


async def try_for_a_while(query: Query[T]) -> T | None:
    """Return None if Slurm, or its login node, is away or slow: requests must be answered meanwhile."""
    try:
        async with asyncio.timeout(FIRST_WAIT_S):
            return await _retry(query)
    except TimeoutError:
        return None


async def _retry(query: Query[T]) -> T:
    """It may take days, of a key that the login node refuses: the cause is logged now and then."""
    logged_at = -inf
    while True:
        try:
            return await query()
        except WorkloadManagerError as fault:
            if (now := time.monotonic()) - logged_at >= LOG_EVERY_S:
                log.warning("Slurm does not answer", detail=fault.detail)
                logged_at = now
        await asyncio.sleep(RETRY_S)


@asynccontextmanager
async def serving_not_ready(settings: RedboxSettings) -> AsyncIterator[None]:
    listeners = open_listeners(settings.listen, settings.tls, slurm_not_ready, ConnectionLimiter())
    listening = [asyncio.create_task(listener.listen()) for listener in listeners]
    notify_ready()  # a start that waits for Slurm has not failed
    try:
        yield
    finally:
        for listener in listeners:
            listener.should_exit = True
        await asyncio.wait(listening)
