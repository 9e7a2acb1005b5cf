"""Names of nodes as Slurm writes them: `n[1-3,7],gpu01`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

NUMBERED = re.compile(r"(.*?)([0-9]+)")


def folded(names: Iterable[str]) -> str:
    """All of them in one word, which scontrol and `--nodelist` take."""
    numbers: dict[str, list[str]] = {}
    for name in names:
        numbered = NUMBERED.fullmatch(name)
        prefix, number = numbered.groups() if numbered else (name, "")
        numbers.setdefault(prefix, []).append(number)
    return ",".join(_one(prefix, found) for prefix, found in numbers.items())


def _one(prefix: str, numbers: list[str]) -> str:
    if len(numbers) == 1:
        return prefix + numbers[0]
    ranges = ",".join(_ranges(sorted(numbers, key=lambda number: (int(number or 0), number))))
    return f"{prefix}[{ranges}]"


def _ranges(numbers: list[str]) -> Iterator[str]:
    """`1-3` of 1, 2, 3; `08-10` of 08, 09, 10: the zeros of the first are those of all."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != str(int(last or 0) + 1).zfill(len(first)):
            yield first if first == last else f"{first}-{last}"
            first = number
        last = number
    yield first if first == last else f"{first}-{last}"
