"""Nothing that a command writes controls the terminal, but its own colours."""

from __future__ import annotations

import io
import json

import pytest
import yaml

from kubectl_slurm.terminal.documents import as_json, as_yaml
from kubectl_slurm.terminal.screen import Screen, note

HOSTILE = "\x1b]0;owned\x07\u202e\x9b2J\x1b[H"


def test_a_screen_keeps_its_own_colours_alone() -> None:
    out = io.StringIO()
    screen = Screen(out, is_terminal=True, width=80, has_colours=True)
    screen.write(f"{screen.paint('ok', 'green')} {HOSTILE}\n\tsecond")
    assert out.getvalue() == "\x1b[32mok\x1b[0m ?]0;owned???2J?[H\n\tsecond\n"


def test_a_note_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    note(f"a\n{HOSTILE}")
    assert capsys.readouterr().err == "a\n?]0;owned???2J?[H\n"


def test_documents_are_escaped_and_keep_their_values() -> None:
    document = {"message": HOSTILE, "name": "Größe", "script": "#!/bin/sh\necho \u202e\n"}
    texts = as_json(document), as_yaml(document)
    assert [json.loads(texts[0]), yaml.safe_load(texts[1])] == [document, document]
    assert all(text.replace("\n", "").isprintable() for text in texts)
