"""How much is measured: everything, or the short form, which is smaller and is never published.

The runner sets the variable before it imports the benchmarks, whose sizes are constants.
"""

from __future__ import annotations

import os
from typing import TypeVar

VARIABLE = "BENCH_SHORT"
Size = TypeVar("Size", int, float)


def choose_short() -> None:
    os.environ[VARIABLE] = "1"


def is_short() -> bool:
    return os.environ.get(VARIABLE) == "1"


def sized(whole: Size, short: Size) -> Size:
    """A count or a time, by the form that is measured."""
    return short if is_short() else whole
