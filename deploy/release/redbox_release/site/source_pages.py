"""Files of the checkout that are not Markdown, as pages: the examples in one, other linked files alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from redbox_bed.core.places import CHECKOUT
from redbox_release.site.places import anchor_of

_LANGUAGES = {
    ".yaml": "yaml",
    ".sh": "bash",
    ".py": "python",
    ".json": "json",
    ".service": "ini",
    ".def": "bash",
}
_SHOWN_BYTES = 100_000
_HIDDEN = {"__pycache__"}


def examples_page() -> str:
    """Every file of examples, below its name."""
    folder = CHECKOUT / "examples"
    lines = ["# Examples", "", "The files of the checkout's folder `examples`; tests run each of them."]
    for path in sorted(folder.rglob("*"), key=lambda path: (len(path.relative_to(folder).parts), path)):
        if path.is_file() and not _HIDDEN & set(path.parts):
            name = str(path.relative_to(folder))
            lines += ["", f"## {name} {{: #{anchor_of(name)} }}", "", *_code(path)]
    return "\n".join(lines) + "\n"


def source_page(path: str) -> str:
    """One file, below its name."""
    return (
        "\n".join([f"# {Path(path).name}", "", f"`{path}` of the checkout.", "", *_code(CHECKOUT / path)])
        + "\n"
    )


def _code(path: Path) -> Iterator[str]:
    text = path.read_text()
    fence = "````" if "```" in text else "```"
    yield fence + _LANGUAGES.get(path.suffix, "text")
    yield text[:_SHOWN_BYTES].rstrip("\n")
    yield fence
    if len(text) > _SHOWN_BYTES:
        yield from ("", f"Its first {_SHOWN_BYTES} characters of {len(text)}.")
