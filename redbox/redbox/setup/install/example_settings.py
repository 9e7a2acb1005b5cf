"""Renders the settings file with every key, its description and its default, from the models.

A key with a value is in force; every other one is commented out with its default: `#` at the very beginning
of the line, so that removing it leaves valid YAML.
    python -m redbox.setup.install.example_settings > redbox/redbox.example.yaml
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from redbox.core.durations import Duration
from redbox.settings import RedboxSettings

WIDTH = 100
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of a section."""

    name: str
    section: type[BaseModel] | None
    is_list: bool
    default: Any
    description: str
    example: Any


def render_settings(values: Values) -> str:
    lines = ["# Red Box's settings. Lines that begin with # and a key show the defaults."]
    for key in _keys(RedboxSettings):
        lines += ["", *_render_key(key, values, depth=0, in_force=True)]
    return "\n".join(lines) + "\n"


def _render_key(
    key: _Key, values: Values, *, depth: int, in_force: bool, described: bool = True
) -> Iterator[str]:
    given = key.name in values
    if described and key.description:
        yield from _comment(key.description, depth)
    if key.section is None:
        shown = values[key.name] if given else key.example if key.default is None else key.default
        yield _line(f"{key.name}: {_scalar(shown)}", depth, in_force=in_force and given)
    elif key.is_list:
        yield from _render_list(key, key.section, values, depth, in_force=in_force)
    else:
        is_set = in_force and (given or key.default is not None)
        yield _line(f"{key.name}:", depth, in_force=is_set)
        for inner in _keys(key.section):
            yield from _render_key(inner, values.get(key.name, {}), depth=depth + 1, in_force=is_set)


def _render_list(
    key: _Key, section: type[BaseModel], values: Values, depth: int, *, in_force: bool
) -> Iterator[str]:
    items: Sequence[Values] = values.get(key.name, ())
    yield _line(f"{key.name}:", depth, in_force=in_force and bool(items))
    for number, item in enumerate(items or [_example_of(section)]):
        yield from _render_item(
            section, item, depth, in_force=in_force and bool(items), described=number == 0
        )


def _render_item(
    section: type[BaseModel], item: Values, depth: int, *, in_force: bool, described: bool
) -> Iterator[str]:
    """Render one item of a list; only the first one has descriptions, and the keys that it does not set."""
    keys = [key for key in _keys(section) if described or key.name in item]
    first = next(key for key in keys if key.name in item)
    if described:
        yield from _comment(first.description, depth + 1)
    yield _line(f"- {first.name}: {_scalar(item[first.name])}", depth, in_force=in_force)
    for key in keys:
        if key is not first:
            yield from _render_key(key, item, depth=depth + 1, in_force=in_force, described=described)


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


def _section_in(kind: Any) -> tuple[type[BaseModel] | None, bool]:  # noqa: ANN401 (any annotation)
    """The section that a key holds, and whether it holds a list of them."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind, False
    sections = (_section_in(argument)[0] for argument in get_args(kind))
    return next(filter(None, sections), None), get_origin(kind) is tuple


@cache
def _keys(section: type[BaseModel]) -> tuple[_Key, ...]:
    return tuple(_key(name, field) for name, field in section.model_fields.items())


def _key(name: str, field: FieldInfo) -> _Key:
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    section, is_list = _section_in(field.annotation)
    description = field.description or (inspect.getdoc(section) if section and not is_list else "") or ""
    return _Key(name, section, is_list, default, description, (field.examples or [None])[0])


def _example_of(section: type[BaseModel]) -> dict[str, Any]:
    return {key.name: key.example for key in _keys(section) if key.example is not None}


if __name__ == "__main__":
    print(render_settings({"name": "hpc1"}), end="")  # noqa: T201 (the Makefile redirects it into the file)
