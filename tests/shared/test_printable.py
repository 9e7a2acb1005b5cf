"""No text from outside controls a terminal, or shows another text than it has."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_shared.job_end import encode_message, refusal_message
from redbox_shared.own_lines import own_line
from redbox_shared.printable import escaped, printable, printable_texts

HOSTILE = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x00",
    "\x7f",
    "\x9b31m",
    "\u202e",
    "\u2066",
    "\u200e",
    "\u061c",
    "\u200b",
    "\u2060",
    "\ufeff",
    "\U000e0041",
    "\ud800",
    "\ue000",
    "\ufffe",
    "\u3164",
    "\xad",
    "a\u200db",
]
SEEN = [
    "train-1",
    "Größe",
    "e\u0301",
    "\u4efb\u52a1",
    "\u0645\u0631\u062d\u0628\u0627",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f469\u200d\U0001f52c",
    "\u0645\u06cc\u200c\u062e\u0648",
    "≤ 3 %",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("lines", [False, True])
def test_what_controls_a_terminal_or_hides_is_replaced(text: str, *, lines: bool) -> None:
    shown = printable(f"<{text}>", lines=lines)
    assert text not in shown
    assert "?" in shown
    assert shown.isprintable()


@pytest.mark.parametrize("text", SEEN)
def test_text_of_all_scripts_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "line", "lines"),
    [
        ("a\r\nb\tc", "a  b c", "a\nb\tc"),
        ("a\rb", "a b", "a b"),
        ("a\u2028b\u2029c\u00a0d", "a b c d", "a b c d"),
        ("a\x0bb\x85c", "a b c", "a b c"),
    ],
)
def test_newlines_stay_only_where_lines_are_meant(text: str, line: str, lines: str) -> None:
    assert (printable(text), printable(text, lines=True)) == (line, lines)


@given(st.text(alphabet=st.characters(codec=None)))
def test_nothing_else_than_printable_characters_and_joiners_is_left(text: str) -> None:
    for lines in (False, True):
        shown = printable(text, lines=lines)
        left = {letter for letter in shown if not letter.isprintable()}
        assert left <= ({"\n", "\t", "\u200c", "\u200d"} if lines else {"\u200c", "\u200d"})
        assert not {unicodedata.category(letter) for letter in left} & {"Cs", "Co", "Cn", "Zl", "Zp"}
        assert printable(shown, lines=lines) == shown


@given(st.text(alphabet=st.characters(codec=None)))
def test_escaped_json_has_the_same_values_and_is_printable(text: str) -> None:
    document = escaped(json.dumps({"message": text}, ensure_ascii=False))
    assert json.loads(document) == {"message": text}
    assert document.isprintable()


def test_a_document_is_printable_in_all_depths() -> None:
    document = {"a": ["\x1b", {"b": "\u202e"}], "n": 1, "t": True, "z": None}
    assert printable_texts(document) == {"a": ["?", {"b": "?"}], "n": 1, "t": True, "z": None}


def test_the_companions_own_words_are_printable() -> None:
    assert own_line("Slurm says \x1b]0;x\x07\u202e") == b"redbox: Slurm says ?]0;x??\n"
    message = json.loads(encode_message(refusal_message("no \x1b[2J", problem_type="t")))
    assert message["refused"] == "no ?[2J"
