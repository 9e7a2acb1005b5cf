"""Where each file of the checkout is in the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from redbox_bed.core.places import CHECKOUT

EXAMPLES = "examples.md"
HTTP_API = "http-api.md"
_PAGES: Mapping[str, str] = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
    "docs/README.md": "documentation.md",
    "deploy/chart/README.md": "chart.md",
    "deploy/local/README.md": "bed.md",
    "docs/reference/openapi.json": HTTP_API,
    "examples": EXAMPLES,
}


def place_of(path: str) -> str:
    """The page of a file of the checkout, with the anchor of an example; any other file has its own page."""
    if path in _PAGES:
        return _PAGES[path]
    if path.startswith("examples/"):
        return f"{EXAMPLES}#{anchor_of(path.removeprefix('examples/'))}"
    if path.startswith("docs/") and Path(path).suffix in {".md", ".svg", ".png"}:
        folder, _, name = path.removeprefix("docs/").rpartition("/")
        return posixpath.join(folder, "index.md" if name == "README.md" else name)
    return f"files/{path}.md"


def pages() -> dict[str, str]:
    """Every Markdown file that is a page, and where."""
    documents = (str(path.relative_to(CHECKOUT)) for path in sorted((CHECKOUT / "docs").rglob("*.md")))
    fixed = (path for path in _PAGES if path.endswith(".md"))
    return {path: place_of(path) for path in (*fixed, *documents)}


def anchor_of(heading: str) -> str:
    """The anchor that forges give a heading, which the links of the documents use."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
