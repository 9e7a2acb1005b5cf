"""What answers of the API server are made of: documents, pages of a list, the lines and events of a watch.

What cannot be read raises one of `UNREADABLE`, whatever is wrong with it: something between us and the API
server may answer in its place, and in HTML; and what a tenant wrote may be nested deeper than Python reads.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp

from redbox_kube.api.nesting_limit import parsed

Object = dict[str, Any]
UNREADABLE = (ValueError, TypeError, KeyError, RecursionError)
LONGEST_LINE = 64 << 20
"""Of a watch. An object has at most 1.5 MiB in etcd, and some times that in JSON, where `<` is six bytes."""


class ListPage(NamedTuple):
    """A part of a list, where a watch of it may begin, and where the next part does."""

    items: list[Object]
    version: str
    continues_at: str


def as_object(raw: bytes) -> Object:
    """One document."""
    return dict(parsed(raw))


def as_page(raw: bytes) -> ListPage:
    """One page of a list; a list of nothing may have null for its items."""
    page = as_object(raw)
    metadata = page["metadata"]
    return ListPage(
        list(page["items"] or ()), str(metadata["resourceVersion"]), str(metadata.get("continue") or "")
    )


def as_event(line: bytes) -> Object:
    """One event of a watch: whoever follows it may rely on its type, its object, and that one's version."""
    event = as_object(line)
    kind, seen = str(event["type"]), dict(event["object"])
    if kind != "ERROR" and not seen["metadata"]["resourceVersion"]:
        raise ValueError("an object without its version")
    return {"type": kind, "object": seen}


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Each whole line, however long an object makes it: aiohttp's own stop at 4 MiB."""
    begun = bytearray()
    async for piece in content.iter_any():
        first, *others = piece.split(b"\n")
        begun += first
        for other in others:
            if begun:
                yield bytes(begun)
            begun = bytearray(other)
        if len(begun) > LONGEST_LINE:
            raise ValueError(f"an event of more than {LONGEST_LINE >> 20} MiB")
    if begun:
        raise ConnectionError("it broke off in the middle of an event")


def words(raw: bytes) -> str:
    """Why the API server refuses."""
    try:
        return str(json.loads(raw)["message"])
    except UNREADABLE:
        return raw[:500].decode("utf-8", "replace")
