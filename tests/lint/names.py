"""The names that the product's programs use, and in which functions."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from tests.lint.sources import ROOT, sources

PACKAGES = (
    "redbox/redbox",
    "redbox/redbox_api",
    "redbox/redbox_shared",
    "companion/redbox_companion",
    "operator/redbox_clusters",
    "operator/redbox_hosting",
    "operator/redbox_kube",
    "operator/redbox_operator",
    "resourced/redbox_resourced",
    "cli/kubectl_slurm",
)
NODE_PROGRAMS = ("/program/",)
"""They run as the job's user, and write to that user's own files."""


def names_in(path: Path) -> Iterator[tuple[str, str]]:
    """Each name that is used, called or passed on, with the function around it."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            if isinstance(child, ast.Attribute | ast.Name):
                yield inside, ast.unparse(child)
            yield from walk(child, inside)

    yield from walk(ast.parse(path.read_text()), "")


@functools.cache
def all_names() -> tuple[tuple[str, str, str], ...]:
    found = []
    for package in PACKAGES:
        for path in sources(ROOT / package):
            name = str(path.relative_to(ROOT))
            if path.suffix == ".py" and not any(part in name for part in NODE_PROGRAMS):
                found += [(name, *used) for used in names_in(path)]
    return tuple(found)
