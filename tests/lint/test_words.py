"""Words that are gone: from the prose of the product and its docs, and from the names of variables.

The rule is in docs/developers/glossary.md: a noun of the glossary as subject, an engineer's verb, present
tense. This list holds the words that the rule replaced most often.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.lint.sources import ROOT, sources

GONE = (
    r"mend(s|ed|ing)?",
    r"anew",
    r"who(m)?ever",
    r"told\b",
    r"hears?\b",
    r"heard",
    r"(can(not)?|could(n't)?|to) be had",
    r"errands?",
    r"chores?",
    r"sweep(?!-)",  # a user's job may be called sweep-p9qz4
    r"swept",
    r"doubts",
    r"rivals?",
)
VARIABLES = {"known", "seen", "told", "said", "one"}
PACKAGES = ("redbox", "companion", "operator", "resourced", "cli")
PROSE = {".py", ".md", ".yaml", ".yml", ".tpl", ".txt", ".toml", ".sh", ".service", ".go", ".in"}
NOT_OURS = {"CHANGELOG.md", "requirements.lock"}
"""CHANGELOG.md has former names of settings. The rest is generated."""

pattern = re.compile(r"\b(?:" + "|".join(GONE) + r")", re.IGNORECASE)


def pages() -> Iterator[Path]:
    for folder in (*PACKAGES, "deploy", "docs", "examples"):
        yield from (path for path in sources(ROOT / folder) if path.suffix in PROSE)
    yield from (path for path in ROOT.glob("*.md") if path.name not in NOT_OURS)


def gone_words(text: str) -> list[tuple[int, str]]:
    return [
        (number, match[0])
        for number, line in enumerate(text.splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


def gone_variables(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VARIABLES:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in VARIABLES:
            yield node.lineno, node.arg


def test_words_that_are_gone_do_not_come_back() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in pages()
        for number, word in gone_words(path.read_text())
    ] == []


def test_variables_are_named_by_a_noun() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}: {name}"
        for folder in PACKAGES
        for path in sources(ROOT / folder)
        if path.suffix == ".py"
        for number, name in gone_variables(ast.parse(path.read_text(), str(path)))
    ] == []


def test_a_word_and_a_variable_that_came_back_are_found() -> None:
    text = "def f(known):\n    told = 1  # Mended anew\n"
    assert gone_words(text) == [(2, "told"), (2, "Mended"), (2, "anew")]
    assert list(gone_variables(ast.parse(text))) == [(1, "known"), (2, "told")]
