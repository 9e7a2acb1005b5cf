"""A document of the checkout as a page of the site: links, anchors, and the dialect of Python-Markdown.

The documents are written for forges (CommonMark). Python-Markdown differs in three points that occur in
them: it indents what belongs to an item of a list by four columns, begins no list within a paragraph, and has
anchors of its own for headings.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator

from redbox_release.site.places import anchor_of, place_of

MERMAID = "assets/mermaid.min.js"
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"(`[^`]+`)")
_NO_TAG = re.compile(r"<(?!/?(?:a|br|details|summary)\b|!--|https?:)")
_HEADING = re.compile(r"^(#{1,6}) (.+?)\s*$")
_ITEM = re.compile(r"^([-*]|\d+\.) ")
_FENCE = re.compile(r"^\s*```")
_CONTENT_INDENT = 4


def page_of(path: str, text: str, other_file: Callable[[str], None] = lambda _: None) -> str:
    """The page's Markdown; `other_file` is called with each linked file of the checkout that has no page."""
    lines = [
        line if is_code else _with_links(line, path, other_file)
        for line, is_code in _with_code(_python_markdown(text.splitlines()))
    ]
    lines = list(_with_anchors(lines))
    if "```mermaid" in text:
        # Beside the theme's script, which fetches Mermaid from elsewhere if the page has none.
        lines += ["", f'<script src="{relative(place_of(path), MERMAID)}"></script>']
    return "\n".join(lines) + "\n"


def relative(page: str, target: str) -> str:
    """A link from one page's Markdown to another file of the site."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def _with_code(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is in a block of code."""
    in_code = False
    for line in lines:
        fence = bool(_FENCE.match(line))
        yield line, in_code or fence
        in_code = in_code is not fence


def _python_markdown(lines: list[str]) -> list[str]:
    written: list[str] = []
    indent = 0  # of the content of the list's item that this line may belong to
    has_blocks = False  # that item: several, so that the next item begins after an empty line
    for line, is_code in _with_code(lines):
        item = None if is_code and not line.startswith(" ") else _ITEM.match(line)
        if item and not is_code:
            if (has_blocks or not indent) and written and written[-1].strip():
                written.append("")
            indent, has_blocks = item.end(), False
        elif line.strip() and not line.startswith(" "):
            indent = 0
        has_blocks = has_blocks or not line.strip()
        belongs = indent and line.startswith(" " * indent)
        written.append(" " * (_CONTENT_INDENT - indent) + line if belongs else line)
    return written


def _with_anchors(lines: list[str]) -> Iterator[str]:
    counts = Counter[str]()
    for line, is_code in _with_code(lines):
        heading = None if is_code else _HEADING.match(line)
        if not heading:
            yield line
            continue
        anchor = anchor_of(heading[2])
        number = counts[anchor]
        counts[anchor] += 1
        yield f"{line} {{: #{f'{anchor}-{number}' if number else anchor} }}"


def _with_links(line: str, path: str, other_file: Callable[[str], None]) -> str:
    def rewritten(match: re.Match[str]) -> str:
        return match[1] + _target(match[2], path, other_file) + match[3]

    return beside_code(line, lambda text: _LINK.sub(rewritten, text_of(text)))


def beside_code(line: str, change: Callable[[str], str]) -> str:
    """The line with `change` made to what is not between backticks; a link's text may be code."""
    pieces = _CODE.split(line)
    protected = [f"\0{number}\0" if number % 2 else piece for number, piece in enumerate(pieces)]
    return re.sub("\0(\\d+)\0", lambda match: pieces[int(match[1])], change("".join(protected)))


def text_of(line: str) -> str:
    """The line with placeholders such as <name> as text, which would be taken for tags."""
    return _NO_TAG.sub("&lt;", line)


def _target(target: str, path: str, other_file: Callable[[str], None]) -> str:
    if "://" in target or target.startswith(("#", "mailto:")):
        return target
    file, _, anchor = target.partition("#")
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
    place, _, own_anchor = place_of(found).partition("#")
    if place.startswith("files/"):
        other_file(found)
    anchor = anchor or own_anchor
    return relative(place_of(path), place) + (f"#{anchor}" if anchor else "")
