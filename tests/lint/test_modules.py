"""Rules of this project for its modules, that no tool knows."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.lint.sources import ROOT, sources

MOST_LINES = 400


def too_long(root: Path) -> list[str]:
    sizes = {p: len(p.read_text().splitlines()) for p in sources(root) if p.suffix in {".py", ".go", ".sh"}}
    return [f"{path.relative_to(root)}: {size} lines" for path, size in sizes.items() if size > MOST_LINES]


def foreign_imports(root: Path, *allowed: str) -> list[str]:
    """List imports of `root`, a file or a package, that are neither standard library, its own nor allowed."""
    own = {root.name, *allowed} if root.is_dir() else set(allowed)
    modules = sorted(root.rglob("*.py")) if root.is_dir() else [root]
    return [
        f"{module.name}:{line}: {name}"
        for module in modules
        for line, name in imported(ast.parse(module.read_text(), str(module)))
        if name not in sys.stdlib_module_names | own
    ]


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and top-level name of each absolute import, those inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.lineno, (node.module or "").partition(".")[0]


def test_no_module_is_longer_than_a_reader_can_hold_in_mind() -> None:
    assert too_long(ROOT) == []


def test_the_companion_needs_only_the_standard_library_and_what_all_parts_share() -> None:
    assert foreign_imports(ROOT / "companion/redbox_companion", "redbox_shared") == []


def test_what_runs_in_slurms_pods_needs_only_the_standard_library() -> None:
    assert foreign_imports(ROOT / "operator/redbox_slurmpod") == []


def test_what_all_parts_share_needs_only_the_standard_library() -> None:
    assert foreign_imports(ROOT / "redbox/redbox_shared") == []


def test_the_programs_as_they_are_sent_need_only_the_standard_library(program: Path) -> None:
    assert foreign_imports(program) == []


def test_no_source_root_shadows_a_module_of_the_standard_library() -> None:
    roots = [ROOT / name for name in ("redbox", "companion", "operator", "resourced", "cli", "deploy/local")]
    assert [str(root) for root in roots if (root / "__init__.py").exists()] == []
    packages = [module.parent.name for root in roots for module in root.glob("*/__init__.py")]
    assert set(packages).isdisjoint(sys.stdlib_module_names)


def test_a_module_with_one_line_too_many_is_found(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text("pass\n" * MOST_LINES)
    (tmp_path / "long.py").write_text("pass\n" * (MOST_LINES + 1))
    assert too_long(tmp_path) == ["long.py: 401 lines"]


def test_an_import_from_elsewhere_is_found_even_inside_a_function(tmp_path: Path) -> None:
    package = tmp_path / "lonely"
    package.mkdir()
    (package / "a.py").write_text("import json, os.path\nfrom lonely import b\nfrom . import c\n")
    (package / "b.py").write_text("def later():\n    from yaml.nodes import Node\n    import httpx.client\n")
    assert foreign_imports(package) == ["b.py:2: yaml", "b.py:3: httpx"]
