"""Modules joined to one file, for programs that run where Red Box is not installed: the agent, the runner.

Deterministic, so that an installed program can be compared with this server's own. The modules are found by
their imports of one another, and each is below those that it imports; these imports are left out, everything
else is copied unchanged. Only a program whose start somebody waits for has stand-ins for some imports, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import resources


class JoinError(Exception):
    """The modules cannot be joined to one file."""


NODE = "redbox.node.program"
SHARED = "redbox_shared"
STAND_INS = "late_modules"


def join_package(package: str, entry: str, head: str, *, late: frozenset[str] = frozenset()) -> bytes:
    """Join this module of `package`, and all of Red Box that it imports, below `head`."""
    texts: dict[str, str] = {}
    _add(f"{package}.{entry}", package, texts)
    return join_modules(package, texts, head, late=late).encode()


def _add(module: str, package: str, texts: dict[str, str]) -> None:
    place, _, name = module.rpartition(".")
    if name not in texts:
        text = _read_module(place, name)
        for imported in _inner_imports(ast.parse(text), package):
            _add(imported, package, texts)
        texts[name] = text


def join_modules(
    package: str, texts: dict[str, str], head: str, *, late: frozenset[str] = frozenset()
) -> str:
    """Join modules, each of which imports only from those before it, by `from PACKAGE.MODULE import name`.

    `late`: modules of the standard library that are imported when they are first used. Of typing nothing is
    ever used, but by annotations, and by named tuples, which are made without it.
    """
    imports: set[str] = set()
    bodies: list[str] = []
    owners: dict[str, str] = {}
    for name, text in texts.items():
        tree = ast.parse(text)
        for defined in _defined_names(tree):
            if owners.setdefault(defined, name) != name:
                raise JoinError(f"{name} and {owners[defined]} both define {defined}: rename one")
        imports |= set(_outer_imports(tree, package))
        body = _banner(name, tree) + _without_head(tree, text)
        bodies.append(_with_plain_tuples(tree, body) if "typing" in late else body)
    stand_ins = [line for line in imports if _imported_module(line) in late]
    if stand_ins:
        names = {line for each in stand_ins for line in _stand_ins_for(each)}
        bodies.insert(0, "\n".join([_body_of_stand_ins(), *sorted(names)]))
        imports = imports.difference(stand_ins)
    plain = sorted(line for line in imports if line.startswith("import "))
    return "\n".join([head, *plain, *sorted(imports - set(plain)), *bodies])


def _read_module(place: str, name: str) -> str:
    return (resources.files(place) / f"{name}.py").read_text()


def _imported_module(line: str) -> str:
    match ast.parse(line).body[0]:
        case ast.Import(names=[ast.alias(name=module)]) | ast.ImportFrom(module=str(module)):
            return module
        case _:
            return ""


def _stand_ins_for(line: str) -> Iterator[str]:
    match ast.parse(line).body[0]:
        case ast.Import(names=[ast.alias(name=module, asname=None)]):
            yield f'{module} = LateModule("{module}")'
        case ast.ImportFrom(module="typing", names=names):
            for name in (each.name for each in names):
                is_tuple = name == "NamedTuple"
                yield "from collections import namedtuple" if is_tuple else f"{name} = Annotation()"
        case _:
            raise JoinError(f"{line}: a late import is `import MODULE`")


def _body_of_stand_ins() -> str:
    text = _read_module(NODE, STAND_INS)
    tree = ast.parse(text)
    return _banner(STAND_INS, tree) + _without_head(tree, text)


def _with_plain_tuples(tree: ast.Module, body: str) -> str:
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name, bases=[ast.Name(id="NamedTuple")], body=parts):
                fields = [part for part in parts if isinstance(part, ast.AnnAssign)]
                if any(field.value for field in fields):
                    raise JoinError(f"{name}: a field of a named tuple has no default here")
                names = tuple(ast.unparse(field.target) for field in fields)
                plain = f"class {name}(namedtuple({name!r}, {names!r})):"
                body = body.replace(f"class {name}(NamedTuple):", plain)
            case _:
                pass
    return body


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
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and _is_joined(node, package):
            yield node.module or ""


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
