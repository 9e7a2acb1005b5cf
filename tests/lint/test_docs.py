"""What the docs point at is there, and what the parts say is in the docs."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lint.sources import ROOT, sources

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*/README.md")])
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """As forges make them of headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in LINK.findall(page.read_text()):
            if not target.startswith(("http://", "https://")):
                yield page, target


@pytest.mark.parametrize(("page", "target"), [*links()], ids=lambda value: Path(str(value)).name)
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    file, _, anchor = target.partition("#")
    aim = (page.parent / file).resolve() if file else page
    assert aim.exists(), f"{page.name}: {target}"
    if anchor:
        assert anchor in anchors(aim), f"{page.name}: {target}"


PATH = re.compile(r"(?<![\w/.~$}-])(?:docs|deploy|examples)/[\w.-]+(?:/[\w.-]+)*")
"""A path from the repository's root; links of pages are relative, and have their own test."""
FORMER = {"CHANGELOG.md"}
"""It names files that are gone."""
PRODUCT = ("redbox", "companion", "operator", "resourced", "cli", "deploy")


def missing_paths(text: str) -> set[str]:
    return {path for found in PATH.findall(text) if not (ROOT / (path := found.rstrip(".-"))).exists()}


TYPED_ELSEWHERE = {
    "personal.md": "tests/e2e/ssh/test_personal.py",
    "recipes.md": "tests/e2e/recipes/test_recipes.py",
    "moving-from-sylabs.md": "tests/e2e/slurmjobs/test_sylabs.py",
}
"""Pages for users that test_walkthroughs.py leaves to others."""


def test_a_page_for_users_with_commands_is_typed_by_a_test() -> None:
    walked = (ROOT / "tests/e2e/install/test_walkthroughs.py").read_text()
    pages = {page.name for page in (ROOT / "docs/users").glob("*.md") if "```sh\n" in page.read_text()}
    assert {name for name in pages if f'"{name}": ' not in walked} == TYPED_ELSEWHERE.keys()
    assert all((ROOT / test).exists() for test in TYPED_ELSEWHERE.values())


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_shown_as_it_is_or_linked(example: Path) -> None:
    shown = f"```yaml\n{example.read_text()}```" in (ROOT / "docs/users/guide.md").read_text()
    pages = "".join(page.read_text() for page in (ROOT / "docs/users").glob("*.md"))
    assert shown or f"(../../examples/{example.name})" in pages


def literals(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in FORMER], ids=lambda page: page.name
)
def test_a_path_in_the_prose_of_a_page_exists(page: Path) -> None:
    assert missing_paths(LINK.sub("", page.read_text())) == set()


def test_a_path_in_a_string_of_the_product_exists() -> None:
    modules = [path for folder in PRODUCT for path in sources(ROOT / folder) if path.suffix == ".py"]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in modules}
    suspects = {
        name: text for name, text in texts.items() if missing_paths(text)
    }  # parsing all takes seconds
    missing = {name: missing_paths("\n".join(literals(text))) for name, text in suspects.items()}
    assert {name: paths for name, paths in missing.items() if paths} == {}


def test_a_path_that_does_not_exist_is_found() -> None:
    assert missing_paths("see docs/nowhere/a.md.") == {"docs/nowhere/a.md"}
    assert missing_paths("\n".join(literals("ERROR = 'see docs/nowhere/b.md'"))) == {"docs/nowhere/b.md"}
    assert missing_paths("see docs/README.md, or https://example.org/docs/a.md, or ../docs/a.md") == set()


MAPS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"])
MODULE = re.compile(r"`([\w./-]+/[\w-]+\.(?:py|go))`")
NOT_MODULES = re.compile(r"NAME|operator/__init__\.py")
"""What a reader is to create, and what must not exist."""


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.name)
def test_a_module_that_a_page_names_is_there(page: Path) -> None:
    paths = ["/" + str(path.relative_to(ROOT)) for path in sources() if path.suffix in {".py", ".go"}]
    named = set(MODULE.findall(page.read_text()))
    assert not {
        name
        for name in named
        if not NOT_MODULES.search(name) and not any(path.endswith("/" + name) for path in paths)
    }


DECIDED = re.compile(r"^\| .+ \| `([\w/.-]+\.py)` \| (.+) \|$", re.MULTILINE)


def test_where_it_is_decided_names_functions_that_are_there() -> None:
    rows = DECIDED.findall((ROOT / "docs/developers/where-decided.md").read_text())
    assert len(rows) > 50
    missing = [
        f"{path}: {name}"
        for path, names in rows
        for dotted in re.findall(r"`([\w.]+)`", names)
        for name in dotted.split(".")
        if not re.search(rf"\b(?:def|class) {name}\b|^{name}\b", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert not missing


NOT_IN_DETAIL = ("redbox_resourced.translation", "redbox_release")


def layers() -> Iterator[str]:
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and not contract["containers"][0].startswith(NOT_IN_DETAIL):
            yield from (name for layer in contract["layers"] for name in layer.split(" | "))


def test_the_architecture_names_each_layer() -> None:
    page = (ROOT / "docs/developers/architecture.md").read_text()
    assert not {name for name in layers() if f"`{name}`" not in page} - {"__main__"}


LONGEST_CELL = 200


def rows_of_tables(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_a_cell_of_the_threat_model_is_short() -> None:
    rows = rows_of_tables((ROOT / "docs/administrators/threat-model.md").read_text())
    assert not [cell for row in rows for cell in row if len(cell) > LONGEST_CELL]


def test_each_attack_of_the_threat_model_names_tests_that_there_are() -> None:
    modules = (ROOT / "tests").rglob("test_*.py")
    sources = "\n".join(module.read_text() for module in modules)
    there_are = set(re.findall(r"^\s*(?:async )?def (test_\w+)", sources, re.MULTILINE))
    attacks = (ROOT / "docs/administrators/threat-model.md").read_text().partition("## Attacks")[2]
    rows = [row for row in rows_of_tables(attacks) if row != ["attack", "barrier", "test"]]
    named = {row[0]: set(re.findall(r"`(test_\w+)`", row[2])) for row in rows}
    assert len(named) > 50
    assert not {attack for attack, tests in named.items() if not tests or tests - there_are}
