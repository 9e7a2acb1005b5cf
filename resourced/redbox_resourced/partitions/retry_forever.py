"""What is followed for ever: a list and a watch that end, break off, and are begun again."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from redbox_api.errors import RedboxError, TooOld
from redbox_kube.api.objects import ApiError

LONGEST_PAUSE_S = 10.0


async def keep_on(
    follow: Callable[[], Awaitable[None]], failed: Callable[[str], None], *, first_pause_s: float
) -> None:
    """Follow until cancelled; each failure is told, and makes the pause before the next try longer."""
    failures = 0
    while True:
        try:
            with contextlib.suppress(TooOld):
                await follow()
            failures = 0
        except (RedboxError, ApiError, ValueError) as error:  # ValueError: no event of ours
            failures += 1
            failed(str(error))
        pause = min(LONGEST_PAUSE_S, first_pause_s * 2.0 ** min(failures, 6))
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 (spreads load)
