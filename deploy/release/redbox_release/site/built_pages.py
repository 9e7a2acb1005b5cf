"""Faults of a built site: links that lead nowhere, and assets that a browser would fetch from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}
_FETCHED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "manifest"}


@dataclass
class _Page(HTMLParser):
    """The anchors of a page, what it links to, and what it fetches."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.fetched += [values[name] for name in values if (tag, name) in _FETCHED]
        if tag == "link" and _FETCHED_LINKS & set(values.get("rel", "").split()):
            self.fetched.append(values["href"])


def faults_of(site: Path) -> Iterator[str]:
    """A sentence for each fault; links to other sites are not followed."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.fetched:
            if urlsplit(address).netloc:
                yield f"{name}: a browser fetches {address} from elsewhere"
            elif not _file_of(site, path, address).is_file():
                yield f"{name}: there is no {address}"
        if name.name == "404.html":  # its links are those of the site's root
            continue
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = _file_of(site, path, address)
            if not target.is_file():
                yield f"{name}: the link {address} leads nowhere"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {address}: that page has no such anchor"


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def _file_of(site: Path, page: Path, address: str) -> Path:
    path = unquote(urlsplit(address).path)
    if not path:
        return page
    start = site if path.startswith("/") else page.parent
    target = (start / path.lstrip("/")).resolve()
    return target / "index.html" if target.is_dir() else target
