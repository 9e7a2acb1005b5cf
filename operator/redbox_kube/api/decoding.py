"""Decoding of responses of the API server: objects, pages of a list, events of a watch.

An undecodable response raises one of `UNREADABLE`, whatever is wrong with it: a proxy may answer in HTML in
place of the API server, and an object of a tenant may be nested deeper than Python can parse.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from redbox_kube.api.nesting_limit import parsed

Object = dict[str, Any]
UNREADABLE = (ValueError, TypeError, KeyError, RecursionError)


class ListPage(NamedTuple):
    """A page of a list, the version for a watch of it, and the token of the next page."""

    items: list[Object]
    version: str
    continues_at: str


def as_object(raw: bytes) -> Object:
    return dict(parsed(raw))


def as_page(raw: bytes) -> ListPage:
    """A page of a list; an empty list may have null items."""
    page = as_object(raw)
    metadata = page["metadata"]
    return ListPage(
        list(page["items"] or ()), str(metadata["resourceVersion"]), str(metadata.get("continue") or "")
    )


def as_event(line: bytes) -> Object:
    """An event of a watch, with a type, an object and its version."""
    event = as_object(line)
    kind, body = str(event["type"]), dict(event["object"])
    if kind != "ERROR" and not body["metadata"]["resourceVersion"]:
        raise ValueError("an object without its version")
    return {"type": kind, "object": body}


def error_message(raw: bytes) -> str:
    """The API server's reason for a refusal."""
    try:
        return str(json.loads(raw)["message"])
    except UNREADABLE:
        return raw[:500].decode("utf-8", "replace")
