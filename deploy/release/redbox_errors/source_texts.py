"""Error texts as the product's source has them: each call of an exception's class, and its arguments."""

from __future__ import annotations

import ast
import re
from collections import ChainMap
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PRODUCT = ("redbox", "companion", "operator", "resourced", "cli")
HOLE = "…"
"""What is filled in."""
FIELD = re.compile(r"\{[^{}]*\}")
BUILT_IN = frozenset({"BaseException", "Exception", "HTTPException"})
Known = MutableMapping[str, list[str]]
"""What names stand for."""


@dataclass(frozen=True)
class CalledKind:
    """A class or function that is called, the texts of its arguments, and the module."""

    kind: str
    arguments: tuple[tuple[str, ...], ...]
    """Of each argument its texts: none where it is computed, two of a condition."""
    module: str

    @property
    def words(self) -> list[str]:
        """Arguments of one word, such as a reason."""
        return [text for texts in self.arguments for text in texts if re.fullmatch(r"[A-Za-z]+", text)]

    @property
    def sentences(self) -> list[str]:
        return [text for texts in self.arguments for text in texts if " " in text.strip()]


@dataclass
class Source:
    """All modules of the product, parsed."""

    checkout: Path

    @cached_property
    def modules(self) -> dict[str, ast.Module]:
        files = [file for folder in PRODUCT for file in sorted((self.checkout / folder).rglob("*.py"))]
        return {str(file.relative_to(self.checkout)): ast.parse(file.read_text()) for file in files}

    @cached_property
    def bases(self) -> dict[str, list[str]]:
        """The bases of each class, by their last names."""
        return {
            node.name: [_last_name(base) for base in node.bases]
            for module in self.modules.values()
            for node in ast.walk(module)
            if isinstance(node, ast.ClassDef)
        }

    def lineage(self, kind: str) -> list[str]:
        """The class, then what it inherits from, the nearest first."""
        found, left = [], [kind]
        while left:
            name = left.pop(0)
            if name not in found:
                found.append(name)
                left += self.bases.get(name, [])
        return found

    @cached_property
    def exceptions(self) -> frozenset[str]:
        """Exceptions that the product defines."""
        return frozenset(name for name in self.bases if not BUILT_IN.isdisjoint(self.lineage(name)))

    @cached_property
    def strings(self) -> frozenset[str]:
        """All texts of the modules that explain no errors."""
        return frozenset(
            node.value
            for name, module in self.modules.items()
            if "/explanations/" not in name
            for node in ast.walk(module)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )

    @cached_property
    def constants(self) -> dict[str, list[str]]:
        """Constants of modules, by names that mean one thing in the whole product."""
        found: dict[str, list[str]] = {}
        for module in self.modules.values():
            for name, texts in _constants_of(module).items():
                found.setdefault(name, []).extend(text for text in texts if text not in found.get(name, []))
        return {name: texts for name, texts in found.items() if len(texts) == 1}

    def calls_of(self, kinds: Collection[str]) -> list[CalledKind]:
        """All calls of these classes and functions."""
        return [call for name in self.modules for call in self._calls_in(name, kinds)]

    def _calls_in(self, name: str, kinds: Collection[str]) -> Iterator[CalledKind]:
        module = self.modules[name]
        known = ChainMap(_constants_of(module), self.constants)
        for scope in _scopes(module):
            nodes = list(_own_nodes(scope))
            calls = [node for node in nodes if isinstance(node, ast.Call) and _last_name(node.func) in kinds]
            for call in calls:
                local = ChainMap(_assigned(nodes, known, call.lineno), known)
                values = [*call.args, *(keyword.value for keyword in call.keywords)]
                texts = tuple(tuple(_texts(value, local)) for value in values)
                yield CalledKind(_last_name(call.func), texts, name)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _constants_of(module: ast.Module) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names, values = [node.targets[0]], [node.value]
            if isinstance(names[0], ast.Tuple) and isinstance(values[0], ast.Tuple):
                names, values = names[0].elts, values[0].elts
            for name, value in zip(names, values, strict=True):
                if isinstance(name, ast.Name) and isinstance(value, ast.Constant | ast.JoinedStr | ast.BinOp):
                    found[name.id] = _texts(value, found)
    return found


def _scopes(module: ast.Module) -> Iterator[ast.AST]:
    yield module
    yield from (node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Without those of functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own_nodes(child)


def _assigned(nodes: Sequence[ast.AST], known: Known, before: int) -> Known:
    """The texts that local names have above a line: of each the last assignment counts."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        if getattr(node, "lineno", before) >= before:
            continue
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = _texts(value, ChainMap(found, known))
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                added = _texts(value, ChainMap(found, known)) or [HOLE]
                found[name] = [a + b for a in found.get(name, [HOLE]) for b in added]
    return found


def _texts(node: ast.expr, known: Known) -> list[str]:  # noqa: PLR0911 (one for each form)
    """The texts that an expression may have; none where it is computed."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(_part(part, known) for part in parts)]
        case ast.Name(id=name):
            return known.get(name, [])
        case ast.Attribute(attr=name) if name.isupper():
            return known.get(name, [])
        case ast.IfExp(body=body, orelse=otherwise):
            return [*_texts(body, known), *_texts(otherwise, known)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [a + b for a in _texts(left, known) or [HOLE] for b in _texts(right, known) or [HOLE]]
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return [FIELD.sub(HOLE, text) for text in _texts(value, known)]
        case ast.Call(func=ast.Name(id="one_line"), args=[value]):
            return _texts(value, known)
    return []


def _part(part: ast.expr, known: Known) -> str:
    match part:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=ast.Name(id=name)) if name.isupper() and len(known.get(name, [])) == 1:
            return known[name][0]
    return HOLE
