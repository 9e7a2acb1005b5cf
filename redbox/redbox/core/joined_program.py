"""Modules joined to one file, for programs that run where Red Box is not installed: the agent, the runner.

Deterministic, so that an installed program can be compared with this server's own. The modules are in the
order of their imports; imports of one another are left out, everything else is copied unchanged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import resources


class JoinError(Exception):
    """The modules cannot be joined to one file."""


NODE = "redbox.node.program"
SHARED = "redbox_shared"


def join_package(
    package: str,
    modules: tuple[str, ...],
    head: str,
    *,
    node: tuple[str, ...] = (),
    shared: tuple[str, ...] = (),
) -> bytes:
    """Join these modules of `package`, in this order, below `head` and what programs share."""
    sources = ((SHARED, shared), (NODE, node), (package, modules))
    places = [(place, name) for place, names in sources for name in names]
    texts = {name: (resources.files(place) / f"{name}.py").read_text() for place, name in places}
    return join_modules(package, texts, head).encode()


def join_modules(package: str, texts: dict[str, str], head: str) -> str:
    """Join modules, each of which imports only from those before it, by `from PACKAGE.MODULE import name`."""
    imports: set[str] = set()
    bodies: list[str] = []
    owners: dict[str, str] = {}
    for name, text in texts.items():
        tree = ast.parse(text)
        for defined in _defined_names(tree):
            if owners.setdefault(defined, name) != name:
                raise JoinError(f"{name} and {owners[defined]} both define {defined}: rename one")
        for other in _inner_imports(tree, package):
            if other not in owners.values():
                raise JoinError(f"{name} imports {other}, which is not joined above it")
        imports |= set(_outer_imports(tree, package))
        bodies.append(_banner(name, tree) + _without_head(tree, text))
    plain = sorted(line for line in imports if line.startswith("import "))
    return "\n".join([head, *plain, *sorted(imports - set(plain)), *bodies])


def _defined_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case _:
                pass


def _inner_imports(tree: ast.Module, package: str) -> Iterator[str]:
    """The names of modules."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and _is_joined(node, package):
            yield (node.module or "").rpartition(".")[2]


def _outer_imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom) and not _is_joined(node, package)
        ):
            yield ast.unparse(node)


def _is_joined(node: ast.ImportFrom, package: str) -> bool:
    return (node.module or "").startswith((f"{package}.", f"{NODE}.", f"{SHARED}."))


def _banner(name: str, tree: ast.Module) -> str:
    docstring = (ast.get_docstring(tree) or "").splitlines()
    return "\n".join(["", "", f"# ---- {name}", *(f"# {line}".rstrip() for line in docstring), ""])


def _without_head(tree: ast.Module, text: str) -> str:
    heads = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom | ast.Expr)]
    dropped = {line for node in heads for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = [line for number, line in enumerate(text.splitlines(), 1) if number not in dropped]
    return "\n".join(lines).strip("\n") + "\n"
