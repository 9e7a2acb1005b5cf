"""One act for each of several workers or nodes, some at once: one that fails stops no other.

Where nobody answers, the others would take as long: after as many silences as are tried at once, the rest is
left to the next reconciliation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_kube.api.objects import ApiError, ApiUnreachable
from redbox_kube.controller.steps import StepFailed

log = structlog.get_logger(__name__)
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AT_ONCE = 8
MOST_SENTENCES = 3
EXPECTED = (ApiError, OSError, StepFailed, TimeoutError)
SILENCE = (ApiUnreachable, SlurmUnknown, TimeoutError)


@dataclass
class Answers(Generic[ItemT, ResultT]):
    """What came of each."""

    done: list[tuple[ItemT, ResultT]] = field(default_factory=list)
    failed: list[tuple[ItemT, Exception]] = field(default_factory=list)

    def check(self) -> None:
        """Raise StepFailed with the first sentences, if any has failed."""
        sentences = list(dict.fromkeys(_sentence(error) for _, error in self.failed))
        if sentences:
            more = len(sentences) - MOST_SENTENCES
            shown = [*sentences[:MOST_SENTENCES], *([f"and {more} more"] if more > 0 else [])]
            raise StepFailed("; ".join(shown))


async def for_each(
    items: Iterable[ItemT], act: Callable[[ItemT], Awaitable[ResultT]]
) -> Answers[ItemT, ResultT]:
    """Only cancellation ends it early."""
    slots = asyncio.Semaphore(AT_ONCE)
    answers = Answers[ItemT, ResultT]()
    silences = 0

    async def attempt(item: ItemT) -> None:
        nonlocal silences
        async with slots:
            if silences >= AT_ONCE:
                return
            try:
                result = await act(item)
            except Exception as error:
                silences += isinstance(error, SILENCE)
                if not isinstance(error, EXPECTED):
                    log.exception("defect", item=str(item)[:200])
                answers.failed.append((item, error))
            else:
                answers.done.append((item, result))

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(attempt(item))
    return answers


def _sentence(error: Exception) -> str:
    if isinstance(error, EXPECTED):
        return str(error) or type(error).__name__
    return f"a defect, see the log: {error!r}"
