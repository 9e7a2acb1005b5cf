"""The settings file with every key, its meaning and its default, written from the models: it cannot drift.

A key that is given a value stands there as it counts; every other one is commented out with its default:
`#` at the very beginning of the line, so that taking it away leaves good YAML.
    python -m redbox.setup.install.example_settings > redbox/redbox.example.yaml
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from redbox.core.durations import Duration
from redbox.settings import Settings

WIDTH = 100
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of a section."""

    name: str
    kind: Any
    default: Any
    meaning: str
    example: Any = None


def render_settings(values: Values) -> str:
    """The file, with these values in force."""
    lines = ["# Red Box's settings. Lines that begin with # and a key show the defaults."]
    for key in _keys(Settings):
        lines += ["", *_render_key(key, values, depth=0, in_force=True)]
    return "\n".join(lines) + "\n"


def _render_key(key: _Key, values: Values, *, depth: int, in_force: bool, told: bool = True) -> Iterator[str]:
    given = key.name in values
    if told and key.meaning:
        yield from _comment(key.meaning, depth)
    section, is_list = _section_in(key.kind)
    if section is None:
        shown = values[key.name] if given else key.example if key.default is None else key.default
        yield _line(f"{key.name}: {_scalar(shown)}", depth, in_force=in_force and given)
    elif is_list:
        yield from _render_list(key, section, values, depth, in_force=in_force)
    else:
        counts = in_force and (given or key.default is not None)
        yield _line(f"{key.name}:", depth, in_force=counts)
        yield from _render_section(section, values.get(key.name, {}), depth + 1, in_force=counts)


def _render_section(section: type, values: Values, depth: int, *, in_force: bool) -> Iterator[str]:
    for key in _keys(section):
        yield from _render_key(key, values, depth=depth, in_force=in_force)


def _render_list(key: _Key, section: type, values: Values, depth: int, *, in_force: bool) -> Iterator[str]:
    items: Sequence[Values] = values.get(key.name, ())
    yield _line(f"{key.name}:", depth, in_force=in_force and bool(items))
    for number, item in enumerate(items or [_example_of(section)]):
        yield from _render_item(section, item, depth, in_force=in_force and bool(items), told=number == 0)


def _render_item(section: type, item: Values, depth: int, *, in_force: bool, told: bool) -> Iterator[str]:
    """One item of a list; only the first tells what its keys mean, and shows those that it lacks."""
    keys = [key for key in _keys(section) if told or key.name in item]
    first = next(key for key in keys if key.name in item)
    if told:
        yield from _comment(first.meaning, depth + 1)
    yield _line(f"- {first.name}: {_scalar(item[first.name])}", depth, in_force=in_force)
    for key in keys:
        if key is not first:
            yield from _render_key(key, item, depth=depth + 1, in_force=in_force, told=told)


def _comment(text: str, depth: int) -> Iterator[str]:
    indent = "  " * depth + "# "
    yield from textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _line(text: str, depth: int, *, in_force: bool) -> str:
    return ("" if in_force else "#") + "  " * depth + text


def _scalar(value: object) -> str:
    written = yaml.safe_dump(_plain(value), default_flow_style=True, width=10_000, sort_keys=False)
    return written.removesuffix("...\n").strip()


def _plain(value: object) -> Any:  # noqa: ANN401 (whatever YAML can hold)
    match value:
        case Duration() | PurePath():
            return str(value)
        case Enum():
            return value.value
        case frozenset() | tuple() | list():
            return [_plain(item) for item in value]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


# ------------------------------------------------------------------------------------- what the models say


def _section_in(kind: Any) -> tuple[type | None, bool]:  # noqa: ANN401 (any annotation)
    """The section that a key holds, and whether it holds a list of them."""
    if isinstance(kind, type) and (issubclass(kind, BaseModel) or dataclasses.is_dataclass(kind)):
        return kind, False
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return _section_in(arguments[0])[0], True
    if get_origin(kind) in {Union, types.UnionType}:
        found = [section for section in map(_section_in, arguments) if section[0] is not None]
        return found[0] if found else (None, False)
    return None, False


@cache
def _keys(section: type) -> tuple[_Key, ...]:
    if issubclass(section, BaseModel):
        return tuple(_key_of_model(name, field) for name, field in section.model_fields.items())
    return tuple(_keys_of_dataclass(section))


def _key_of_model(name: str, field: FieldInfo) -> _Key:
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    kind = field.annotation
    section, is_list = _section_in(kind)
    meaning = field.description or (inspect.getdoc(section) if section and not is_list else "") or ""
    return _Key(name, kind, default, meaning, (field.examples or [None])[0])


def _keys_of_dataclass(section: type) -> Iterator[_Key]:
    meanings = {name: text for base in reversed(section.__mro__) for name, text in _meanings_in(base)}
    for field in dataclasses.fields(section):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        yield _Key(field.name, None, default, meanings.get(field.name, ""))


def _meanings_in(section: type) -> Iterator[tuple[str, str]]:
    """What stands behind or below each field of a dataclass in its source, as comment or as docstring."""
    if not dataclasses.is_dataclass(section):
        return
    lines = textwrap.dedent(inspect.getsource(section)).splitlines()
    (defined,) = ast.parse("\n".join(lines)).body
    body = defined.body if isinstance(defined, ast.ClassDef) else []
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = _docstring(below) or _comment_behind(node, lines)
            if text:
                yield node.target.id, text[:1].upper() + text[1:]


def _docstring(node: ast.stmt | None) -> str:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return " ".join(node.value.value.split())
    return ""


def _comment_behind(node: ast.AnnAssign, lines: list[str]) -> str:
    line = lines[(node.end_lineno or node.lineno) - 1]
    return line[node.end_col_offset or 0 :].partition("# ")[2]


def _example_of(section: type) -> dict[str, Any]:
    return {key.name: key.example for key in _keys(section) if key.example is not None}


if __name__ == "__main__":
    print(render_settings({"name": "hpc1"}), end="")  # noqa: T201 (the Makefile redirects it into the file)
