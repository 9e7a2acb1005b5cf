"""A stream of YAML or JSON documents: read within bounds, and those of others kept as they were written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from kubectl_slurm.errors import BadUsage

MOST_BYTES = 16 * 2**20
MOST_VALUES = 1_000_000
MOST_DEEP = 100


class BadManifest(BadUsage):
    """What was given is not a stream of Kubernetes' objects."""


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """One object; `text` as it was written."""

    value: dict[str, Any]
    text: str


class _Loader(yaml.SafeLoader):
    """Like JSON: a timestamp is a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in each if tag != "tag:yaml.org,2002:timestamp"]
    for first, each in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(text: str, source: str) -> Iterator[ManifestDocument]:
    """Each document; an item of a List is one, too. Raises BadManifest."""
    try:
        loader = _Loader(text)
        while loader.check_node():
            node: yaml.Node = loader.get_node()  # type: ignore[assignment]  # check_node() has found one
            _check_size(node, source)
            value = loader.construct_document(node)
            if value is not None:
                yield from _objects(value, text[node.start_mark.index : node.end_mark.index], source)
    except yaml.YAMLError as error:
        raise BadManifest(f"{source} is not YAML: {_problem(error)}") from error
    except RecursionError as error:
        raise BadManifest(f"{source} has a document that is nested too deep") from error
    except ValueError as error:  # a number or a date that Python cannot have
        raise BadManifest(f"{source} is not YAML: {error}") from error


def _objects(value: object, text: str, source: str) -> Iterator[ManifestDocument]:
    if not isinstance(value, dict):
        raise BadManifest(
            f"{source} has a document that is a {type(value).__name__}, and no object of Kubernetes"
        )
    if value.get("kind") == "List" and isinstance(value.get("items"), list):
        for item in value["items"]:
            yield from _objects(item, "", source)
        return
    if not isinstance(value.get("apiVersion"), str) or not isinstance(value.get("kind"), str):
        raise BadManifest(f"{source} {_what_it_is(value)}")
    yield ManifestDocument(value, text)


def _what_it_is(value: dict[str, Any]) -> str:
    if value.keys() & {"nodesets", "loginsets", "nodesetDefaults", "partitions", "controller", "slurmKey"}:
        return (
            "has values of a chart, not manifests: render them first, `helm template NAME CHART --namespace "
            "NAMESPACE --values FILE | kubectl slurm convert -f -`"
        )
    return "has a document without apiVersion and kind"


def _check_size(node: yaml.Node, source: str) -> None:
    """An alias is a copy once it is written: a few of them can stand for more than any memory."""
    left = MOST_VALUES
    pending = [(node, 0)]
    while pending:
        each, depth = pending.pop()
        left -= 1
        if left < 0 or depth > MOST_DEEP:
            raise BadManifest(f"{source} has a document with too many values, or nested too deep")
        if isinstance(each, yaml.MappingNode):
            pending += [(part, depth + 1) for pair in each.value for part in pair]
        elif isinstance(each, yaml.SequenceNode):
            pending += [(part, depth + 1) for part in each.value]


def _problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"{error.problem} in line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())
