"""Text from outside made printable: the one function for what Slurm, red-box, a runner or a tenant wrote.

On a terminal, control characters move the cursor and answer for the user; bidirectional controls and
characters without a width show another text than the one that is there. All of these become `?`: Unicode's
categories Cc (C0, DEL, C1), Cf (bidirectional controls, zero width, tags, BOM), Cs, Co and Cn. The
separators Zl, Zp and Zs become a space. Letters, combining marks and symbols of all scripts stay, and so
do the two joiners that Indic and Persian words and emoji need, behind a character that is not ASCII.

Every program calls it where its text leaves it: `tests/lint/test_printable.py` has these places.
"""

from __future__ import annotations

import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REPLACEMENT = "?"
LINES = "\n\t"
WHITE_SPACE = frozenset("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85")
SEPARATORS = frozenset({"Zl", "Zp", "Zs"})
JOINERS = frozenset("\u200c\u200d")
INVISIBLE_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols by their category, and blank."""


def printable(text: object, *, lines: bool = False) -> str:
    """In one line; with `lines` the text keeps its newlines and tabs."""
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    if lines:
        text = text.replace("\r\n", "\n")
    before, kept = "", []
    for character in text:
        before = _shown(character, before, lines=lines)
        kept.append(before)
    return "".join(kept)


def printable_texts(value: Any, *, lines: bool = False) -> Any:  # noqa: ANN401 (JSON's values)
    """A document, and all its texts printable."""
    if type(value) is str:  # not an enum's member
        return printable(value, lines=lines)
    if isinstance(value, dict):
        return {name: printable_texts(part, lines=lines) for name, part in value.items()}
    if isinstance(value, list):
        return [printable_texts(part, lines=lines) for part in value]
    return value


def escaped(json_text: str) -> str:
    r"""A JSON document with \u escapes for what is not printable: its values stay as they are."""
    if json_text.isascii() and "\x7f" not in json_text:
        return json_text
    return "".join(
        character
        if character in LINES or _shown(character, "", lines=True) == character
        else _escape(character)
        for character in json_text
    )


def _shown(character: str, before: str, *, lines: bool) -> str:
    if character.isprintable():
        return REPLACEMENT if character in INVISIBLE_LETTERS else character
    if character in WHITE_SPACE:
        return character if lines and character in LINES else " "
    if character in JOINERS and before and not before.isascii():
        return character
    return " " if unicodedata.category(character) in SEPARATORS else REPLACEMENT


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
