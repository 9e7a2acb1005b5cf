"""The users that slurmdbd has to know: those of a cluster's passwd lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

LINE = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*):[^:]*:([0-9]{1,9})(?::[^:]*){4}")
FIRST_UID = 500
"""Pods take no user below it from the ConfigMap."""
MOST_USERS = 20_000
LONGEST_NAME = 64


def users_in(passwd: str) -> frozenset[str]:
    """The names in lines of passwd; lines that are none are left out, as by the pods."""
    found: set[str] = set()
    for name in _names(passwd):
        found.add(name)
        if len(found) == MOST_USERS:
            break
    return frozenset(found)


def _names(passwd: str) -> Iterator[str]:
    for line in passwd.splitlines():
        match = LINE.fullmatch(line)
        if match and len(match[1]) <= LONGEST_NAME and int(match[2]) >= FIRST_UID:
            yield match[1]
