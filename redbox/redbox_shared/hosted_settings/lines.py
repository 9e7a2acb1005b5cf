"""Reads the lines that users write into configurations.

Nothing is copied: keys and values are read, checked and written again, so that no value begins a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from redbox_shared.hosted_settings.keys import PARTITION_KEYS, PLUGIN_VALUES, why_refused
from redbox_shared.printable import printable

PAIR = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=("[^"\\#\x00-\x1f\x7f]*"|[^\s"\\#\x00-\x1f\x7f]+)(?:\s+|\Z)')
SLURM_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
BARE = re.compile(r'[A-Za-z0-9_.,:@/-]*|"[A-Za-z0-9_.,:@/-]*"')
"""Of a value that is written without its quotes: in it a space would begin another key."""
NODES = re.compile(r'[A-Za-z0-9_.,\[\]-]*|"[A-Za-z0-9_.,\[\]-]*"')
NOT_BARE = "its value has letters, digits and _ . , : @ / - only, without spaces and ="
UNQUOTED = frozenset({"licenses", "launchparameters"})
SHOWN = 60
SYNTAX = "a line is Key=value, without \\ and without # in a value"


@dataclass(frozen=True, slots=True)
class ConfRefusal:
    """A key or a line of a user that is left out, and why."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} is refused: {self.why}"


@dataclass(frozen=True, slots=True)
class ConfLine:
    """PartitionName or NodeSet, its name, and its options."""

    key: str
    name: str
    options: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in ((self.key, self.name), *self.options))


@dataclass(frozen=True, slots=True)
class UserLines:
    """The settings and lines of a user's text, and what was refused."""

    settings: tuple[tuple[str, str], ...] = ()
    lines: tuple[ConfLine, ...] = ()
    refused: tuple[ConfRefusal, ...] = ()


def read_lines(text: str, allowed: Mapping[str, str]) -> UserLines:
    """The text of a field extraConf. Of a key that is there twice the last value counts."""
    settings: dict[str, str] = {}
    lines: list[ConfLine] = []
    refused: list[ConfRefusal] = []
    for written in text.splitlines():
        line = written.partition("#")[0].strip() if written.lstrip().startswith("#") else written.strip()
        if not line:
            continue
        pairs = pairs_of(line)
        first = re.match(r"[A-Za-z_]\w*", line)
        if not pairs:
            refused.append(ConfRefusal(*_bad_line(line, first[0] if first else "")))
        elif pairs[0][0].lower() in {"partitionname", "nodeset"}:
            made, why = _line(pairs)
            lines += made
            refused += why
        elif problem := _problem(pairs, allowed):
            refused.append(problem)
        else:
            (key, value), *_ = pairs
            settings[allowed[key.lower()]] = value
    return UserLines(tuple(settings.items()), tuple(lines), tuple(refused))


def read_options(text: str, name: str) -> tuple[tuple[tuple[str, str], ...], tuple[ConfRefusal, ...]]:
    """The options of a PartitionName line, without the ones that are refused."""
    pairs = pairs_of(text.strip()) if text.strip() else []
    if text.strip() and not pairs:
        return (), (ConfRefusal(f"partition {name}: {_short(text)}", SYNTAX),)
    kept, refused = [], []
    for key, value in pairs:
        if key.lower() == "nodes" and not NODES.fullmatch(value):
            refused.append(
                ConfRefusal(f"partition {name}: {key}={_short(value)}", "it is not a list of nodes")
            )
        elif canonical := PARTITION_KEYS.get(key.lower()):
            kept.append((canonical, value))
        else:
            refused.append(ConfRefusal(f"partition {name}: {key}", why_refused(key)))
    return tuple(kept), tuple(refused)


def pairs_of(line: str) -> list[tuple[str, str]]:
    """The pairs of a line; none if it has anything else."""
    pairs, at = [], 0
    while at < len(line):
        match = PAIR.match(line, at)
        if not match:
            return []
        pairs.append((match[1], match[2]))
        at = match.end()
    return pairs


def _problem(pairs: list[tuple[str, str]], allowed: Mapping[str, str]) -> ConfRefusal | None:
    (key, value), *others = pairs
    if key.lower() not in allowed:
        return ConfRefusal(key, why_refused(key))
    if others:
        return ConfRefusal(f"{key}={value} {others[0][0]}=...", "write each key in a line of its own")
    if key.lower() in UNQUOTED and not BARE.fullmatch(value):
        return ConfRefusal(f"{key}={_short(value)}", NOT_BARE)
    values = PLUGIN_VALUES.get(key.lower())
    if values and value.lower() not in values:
        return ConfRefusal(f"{key}={_short(value)}", f"it can be {', '.join(values)}")
    return None


def _line(pairs: list[tuple[str, str]]) -> tuple[list[ConfLine], list[ConfRefusal]]:
    (key, name), *options = pairs
    if not SLURM_NAME.fullmatch(name):
        return [], [ConfRefusal(f"{key}={_short(name)}", "it is not a name")]
    if key.lower() == "nodeset":
        bad = [option for option, _ in options if option.lower() not in {"feature", "nodes"}]
        if bad:
            return [], [ConfRefusal(f"NodeSet={name} {bad[0]}", why_refused(bad[0]))]
        return [ConfLine("NodeSet", name, tuple(options))], []
    text = " ".join(f"{option}={value}" for option, value in options)
    kept, refused = read_options(text, name)
    return [ConfLine("PartitionName", name, kept)], list(refused)


def _bad_line(line: str, key: str) -> tuple[str, str]:
    why = why_refused(key) if key.lower() == "include" else SYNTAX
    return _short(line), why


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


def include_lines(text: str) -> Iterator[str]:
    r"""Lines that would read another file, and those that \ at their end joins with the next one."""
    for line in re.split(r"[\r\n]", text):
        if re.match(r"\s*include\b", line, re.IGNORECASE) or line.rstrip().endswith("\\"):
            yield _short(line.strip())
