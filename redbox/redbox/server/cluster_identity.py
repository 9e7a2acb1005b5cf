"""Slurm's name of its cluster, to which marks are bound: as it says, or where it is away, as it said before.

A server that starts while Slurm is away must say what it knows, and answer submits with 503. One that never
heard the name could submit nothing and recognise nothing: it tells callers so until Slurm answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog

from redbox.callers.connection_limits import Connections
from redbox.core.workload_manager import WorkloadManager, WorkloadManagerError
from redbox.http.middleware.slurm_not_ready import not_yet
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.sqlite import JournalBatch
from redbox.server.listeners import open_listeners
from redbox.server.systemd import tell_ready
from redbox.settings import Settings

log = structlog.get_logger(__name__)
PAUSE_S = 2.0
PATIENCE_S = 5.0  # that a start waits before it answers callers
FACT = "Slurm's name of the cluster"
AnswerT = TypeVar("AnswerT")
Question = Callable[[], Awaitable[AnswerT]]


async def cluster_name(settings: Settings, workload: WorkloadManager, journal: Journal) -> str:
    """The name, kept for the next start; where it was never heard, wait for it."""
    known = journal.contents.facts.get(FACT) if journal.contents else None
    if known is None:
        name = (await answer_of(workload.cluster, settings)).name
    else:
        cluster = await _answer_soon(workload.cluster)
        name = cluster.name if cluster else known
    if name != known:
        journal.commit(JournalBatch(facts=((FACT, name),)), lambda _: None)
    return name


async def answer_of(question: Question[AnswerT], settings: Settings) -> AnswerT:
    """What Slurm answers at the start; while it is away or slow, callers are told that it is too early."""
    answer = await _answer_soon(question)
    if answer is not None:
        return answer
    async with answering_not_yet(settings):
        return await _answer(question)


async def _answer_soon(question: Question[AnswerT]) -> AnswerT | None:
    """None where Slurm is away, or slow: who comes meanwhile is to be answered."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await _answer(question)
    except TimeoutError:
        return None


async def _answer(question: Question[AnswerT]) -> AnswerT:
    while True:
        try:
            return await question()
        except WorkloadManagerError as fault:
            log.warning("Slurm does not answer", detail=fault.detail)
        await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def answering_not_yet(settings: Settings) -> AsyncIterator[None]:
    """Tell whoever comes that it is too early."""
    listeners = open_listeners(settings.listen, settings.tls, not_yet, Connections())
    listening = [asyncio.create_task(listener.listen()) for listener in listeners]
    tell_ready()  # a start that waits for Slurm is none that has failed
    try:
        yield
    finally:
        for listener in listeners:
            listener.should_exit = True
        await asyncio.wait(listening)
