"""Has the site's search show pages for users first, then those for administrators, lists of everything last.

The search puts a section first whose title has the words, then one whose text has them early; the index's
order decides between equals. Pages that list everything (the HTTP API, examples, figures, changes) have a
title for each object, and decisions the same titles as what they are about: each of them becomes one
section, with its titles as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

INDEX = "search.json"
READERS = ("users/", "", "administrators/", "chart/", "reference/", "developers/")
"""Their pages in this order; "" is the first page. All others follow."""
DECISIONS = "developers/decisions/"
LISTS = (
    "http-api/",
    "reference/hosting-kinds/",
    "examples/",
    "files/",
    "reference/figures/",
    "changelog/",
    "license/",
    DECISIONS,
)
Section = dict[str, Any]


def rank_for_readers(site: Path) -> None:
    index = json.loads((site / INDEX).read_text())
    index["items"] = [*ranked(index["items"])]
    (site / INDEX).write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")))


def ranked(sections: Iterable[Section]) -> Iterator[Section]:
    pages = [(page, [*group]) for page, group in groupby(sections, key=_page)]
    for page, group in sorted(pages, key=lambda entry: _rank(entry[0])):
        if page.startswith(LISTS):
            yield _merged(group, "Decision: " if page.startswith(DECISIONS) else "")
        else:
            yield from group


def _page(section: Mapping[str, Any]) -> str:
    return str(section["location"]).partition("#")[0]


def _rank(page: str) -> int:
    reader = next(
        (reader for reader in READERS if reader and page.startswith(reader)), "" if not page else None
    )
    return len(READERS) if reader is None else READERS.index(reader)


def _merged(sections: list[Section], kind: str) -> Section:
    first, *others = sections
    text = "".join(f"<p>{section['title']}</p> {section['text']}" for section in others)
    return {**first, "title": kind + first["title"], "text": first["text"] + text}
