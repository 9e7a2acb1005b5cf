"""Array expressions: `36_[5-1024:2%3]` stands for all tasks that are not split off yet. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LARGEST = 4_000_001  # Slurm's own limit for MaxArraySize
RANGE = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?(?::([1-9][0-9]{0,6}))?")
BRACKETED = re.compile(r"([0-9]+)_\[(.+)\]")
SINGLE = re.compile(r"([0-9]+)_([0-9]+)")


def ranges(expression: str) -> list[range] | None:
    """The tasks of `0-6:2,9%4` as ranges; None for other text, or where Slurm cut it: `0-6,...`."""
    listed, _, _limit = expression.partition("%")
    parts = []
    for part in (RANGE.fullmatch(word) for word in listed.split(",")):
        if part is None:
            return None
        first, last = int(part[1]), int(part[2] or part[1])
        if last < first or last > LARGEST:
            return None
        parts.append(range(first, last + 1, int(part[3] or 1)))
    return parts


def count(expression: str) -> int | None:
    found = ranges(expression)
    return None if found is None else sum(map(len, found))


def are_more(expressions: Iterable[str | None], most: int) -> bool:
    """Whether these name more tasks than `most`; a part stands for one at least, so not all need be read."""
    total = 0
    for expression in expressions:
        if not expression or expression.isdigit():
            total += 1
        elif total + expression.count(",") < most:
            total += count(expression) or 1
        else:
            return True
        if total > most:
            return True
    return False


def expand(expression: str) -> Iterator[int]:
    for part in ranges(expression) or ():
        yield from part


def read_array_id(text: str) -> tuple[str, str | None]:
    """The base id, and the task or expression, of sacct's JobID: `36_1`, `36_[5-9%2]`, or plain `36`."""
    found = SINGLE.fullmatch(text) or BRACKETED.fullmatch(text)
    return (found[1], found[2]) if found else (text, None)
