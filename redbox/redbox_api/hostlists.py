"""Slurm's node lists: `n[1-3,7],gpu01` as names. Pure.

Anything that does not read as a host list is kept as it is: a name in an answer is never a reason to fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, product

LONGEST = 20_000  # names; a job on more of them shows the first
BRACKET = re.compile(r"\[([0-9,-]*)\]")


def expand(text: str) -> list[str]:
    """The names in a host list, in its order."""
    return list(islice((name for part in _split(text) for name in _names(part)), LONGEST))


def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def _names(part: str) -> Iterator[str]:
    pieces = BRACKET.split(part)
    literals, ranges = pieces[::2], pieces[1::2]
    try:
        choices = [list(_numbers(text)) for text in ranges]
    except ValueError:
        yield part
        return
    for numbers in product(*choices):
        yield literals[0] + "".join(
            number + literal for number, literal in zip(numbers, literals[1:], strict=True)
        )


def _numbers(text: str) -> Iterator[str]:
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if int(last or first) - int(first) > LONGEST:
            raise ValueError(item)
        yield from (str(n).zfill(len(first)) for n in range(int(first), int(last if dash else first) + 1))
