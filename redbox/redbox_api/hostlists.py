"""Slurm's host lists: `n[1-3,7],gpu01` to names, and names to a host list. Pure.

Text that does not read as a host list is kept as it is: a name in an answer is never a reason to fail. It may
be a user's own agent's: what it costs is bounded by the number of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice, product

LONGEST = 20_000  # names; a job on more of them shows the first
LONGEST_TEXT = 1 << 20
LONGEST_NAME = 255  # characters without its numbers
MOST_BRACKETS = 8  # Slurm has up to five
PART = re.compile(r"(?:[^,\[]+|\[[^\]]*\]?)+")  # commas in brackets are of the part
BRACKET = re.compile(r"\[([0-9,-]*)\]")
RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
DIGITS = "0123456789"
MOST_DIGITS = 18
FIRST = re.compile(r"([^,\[]*)(?:\[([0-9]+)[^\]]*\])?([^,]*)")


def expand(hostlist: str) -> list[str]:
    """The names in a host list, in its order, each once: parts of one job may share nodes."""
    parts = (found[0] for found in PART.finditer(hostlist[:LONGEST_TEXT]))
    names = islice((name for part in parts for name in _expand_part(part)), LONGEST)
    return list(dict.fromkeys(names))


def _expand_part(part: str) -> Iterator[str]:
    pieces = BRACKET.split(part)
    literals, brackets = pieces[::2], pieces[1::2]
    readable = len(brackets) <= MOST_BRACKETS and sum(map(len, literals)) <= LONGEST_NAME
    ranges = [_ranges(text) for text in brackets] if readable else [None]
    if None in ranges:
        yield part
        return
    choices = [islice(_numbers(of_bracket), LONGEST) for of_bracket in ranges if of_bracket]
    for numbers in product(*choices):
        yield literals[0] + "".join(
            number + literal for number, literal in zip(numbers, literals[1:], strict=True)
        )


def _ranges(text: str) -> list[tuple[range, int]] | None:
    """The numbers of one bracket, each range with its digits; none where the text does not read as such."""
    found = [RANGE.fullmatch(word) for word in text.split(",")]
    ranges = [(range(int(item[1]), int(item[2] or item[1]) + 1), len(item[1])) for item in found if item]
    if len(ranges) < len(found) or not all(1 <= len(numbers) <= LONGEST + 1 for numbers, _ in ranges):
        return None
    return ranges


def _numbers(ranges: list[tuple[range, int]]) -> Iterator[str]:
    return (str(number).zfill(digits) for numbers, digits in ranges for number in numbers)


def first_host(hostlist: str) -> str | None:
    """The first name of `n[1-3,7],m2`, without expanding the rest; None for an empty list."""
    found = FIRST.match(hostlist)
    if found is None or not found[0]:
        return None
    return found[1] + (found[2] or "") + found[3]


def fold(names: Iterable[str]) -> str:
    """All names in one word, which scontrol and `--nodelist` take."""
    numbers: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        prefix, number = _numbered(name)
        numbers.setdefault((prefix, bool(number)), []).append(number)
    return ",".join(
        _fold_prefix(prefix, found) if is_numbered else prefix
        for (prefix, is_numbered), found in numbers.items()
    )


def _numbered(name: str) -> tuple[str, str]:
    prefix = name.rstrip(DIGITS)
    return (prefix, name[len(prefix) :]) if len(name) - len(prefix) <= MOST_DIGITS else (name, "")


def _fold_prefix(prefix: str, numbers: list[str]) -> str:
    if len(numbers) == 1:
        return prefix + numbers[0]
    ranges = ",".join(_fold_ranges(sorted(numbers, key=lambda number: (int(number), number))))
    return f"{prefix}[{ranges}]"


def _fold_ranges(numbers: list[str]) -> Iterator[str]:
    """`1-3` of 1, 2, 3; `08-10` of 08, 09, 10: the zeros of the first are those of all."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != str(int(last) + 1).zfill(len(first)):
            yield first if first == last else f"{first}-{last}"
            first = number
        last = number
    yield first if first == last else f"{first}-{last}"
