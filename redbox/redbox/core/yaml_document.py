"""YAML files that administrators write: read with the line of every value, checked by pydantic models.

All flaws are reported at once, each with file, line and key. Stricter than YAML where YAML is a trap: a key
given twice, an alias or a merge key is refused. The models define what the keys mean (`settings`,
`callers.mapping`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

MAX_BYTES = 4 * 1024 * 1024

DocumentPath = tuple[str | int, ...]
"""Where a value is: ("callers", "clusters", 0, "issuer")."""


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError(f"{path} must be an absolute path")
    return path


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


class Section(BaseModel):
    """Base of the settings' sections: unknown keys are refused by name, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _take_defaults_for_empty_sections(cls, given: Any) -> Any:  # noqa: ANN401 (whatever was written)
        """`listen:` with nothing below it, as where all its keys are commented out, is as good as none."""
        if not isinstance(given, dict):
            return given
        sections = {key for key, field in cls.model_fields.items() if isinstance(field.default, BaseModel)}
        return {key: value for key, value in given.items() if value is not None or key not in sections}


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong with a document."""

    source: str
    line: int
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.source} line {self.line}: {self.place + ': ' if self.place else ''}{self.message}"


class DocumentError(Exception):
    """A document cannot be used: every flaw, in the order of their lines."""

    def __init__(self, *flaws: Flaw) -> None:
        self.flaws = tuple(sorted(flaws, key=lambda flaw: flaw.line))
        super().__init__("\n".join(str(flaw) for flaw in self.flaws))


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: plain values, and the line of each."""

    source: str
    value: Any
    lines: Mapping[DocumentPath, int]

    def line_of(self, place: DocumentPath) -> int:
        """The line of this value, or of the nearest one around it that is in the document."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def flaw(self, place: DocumentPath, message: str) -> Flaw:
        return Flaw(self.source, self.line_of(place), _written(place), message)


Model = TypeVar("Model", bound=BaseModel)


def read_document(path: Path) -> Document:
    """Read and parse a file; a file that cannot be read is a flaw of its first line."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DocumentError(Flaw(str(path), 1, "", f"cannot be read: {error.strerror}")) from error
    if len(content) > MAX_BYTES:
        raise DocumentError(Flaw(str(path), 1, "", f"is larger than {MAX_BYTES} bytes"))
    try:
        return parse_document(content.decode(), str(path))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DocumentError(Flaw(str(path), line, "", "is not UTF-8")) from error


def parse_document(text: str, source: str) -> Document:
    """Parse YAML into plain values and lines; an empty document is an empty mapping."""
    try:
        builder = _ValueBuilder(yaml.SafeLoader(text), source)
        node = builder.loader.get_single_node()
        value = {} if node is None else builder.build(node, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DocumentError(Flaw(source, line, "", error.problem or "is not YAML")) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DocumentError(Flaw(source, 1, "", f"is not YAML: {error}")) from error
    return Document(source, value, MappingProxyType(builder.lines))


def validate(model: type[Model], document: Document) -> Model:
    """Make the model of a document, or tell everything that is wrong with it, by line."""
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        flaws = [document.flaw(_known_place(document, item), _message(item)) for item in error.errors()]
        raise DocumentError(*flaws) from error


class _ValueBuilder:
    """Plain values of YAML's nodes, and the line of each."""

    def __init__(self, loader: yaml.SafeLoader, source: str) -> None:
        self.loader = loader
        self.lines: dict[DocumentPath, int] = {}
        self._source = source

    def build(self, node: yaml.Node, place: DocumentPath) -> object:
        self.lines.setdefault(place, node.start_mark.line + 1)  # a mapping's value has the line of its key
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*place, n)) for n, item in enumerate(node.value)]
        return self.loader.construct_object(node)

    def _build_mapping(self, node: yaml.MappingNode, place: DocumentPath) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._key(key_node, line)
            inner = (*place, key)
            if key in mapping:
                message = f"is already given in line {self.lines[inner]}"
                raise DocumentError(Flaw(self._source, line, _written(inner), message))
            self.lines[inner] = line
            mapping[key] = self.build(value_node, inner)
        return mapping

    def _key(self, node: yaml.Node, line: int) -> str:
        if node.tag == "tag:yaml.org,2002:merge":
            message = "merge keys are not supported: write the keys out"
            raise DocumentError(Flaw(self._source, line, "<<", message))
        if not isinstance(node, yaml.ScalarNode):
            raise DocumentError(Flaw(self._source, line, "", "a key must be a plain word"))
        return str(node.value)


def _known_place(document: Document, details: ErrorDetails) -> DocumentPath:
    """Drop what is pydantic's own (names of union members), and keep a missing key's name."""
    place: DocumentPath = ()
    for step in details["loc"]:
        if (*place, step) in document.lines:
            place = (*place, step)
    return (*place, details["loc"][-1]) if details["type"] == "missing" else place


def _message(details: ErrorDetails) -> str:
    if details["type"] == "extra_forbidden":
        return "there is no such key"
    if details["type"] == "missing":
        return "is missing"
    message = details["msg"].removeprefix("Value error, ")
    shown = details.get("input")
    is_plain = isinstance(shown, str | int | float | bool) and details["type"] != "value_error"
    return f"{message} (not {str(shown)[:80]!r})" if is_plain else message


def _written(place: DocumentPath) -> str:
    steps = (f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in place)
    return "".join(steps).removeprefix(".")
