"""A container's variables, in the order and by the rules of kubelets.

The runner expands `$(NAME)` in each value. Kubernetes does so in literal ones alone, so each `$` of a value
from elsewhere is doubled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from redbox_api.pod_parts import POD_ENV_NAME_PATTERN, PodEnv
from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported, refusals_of
from redbox_resourced.translation.fields.sources import source_of
from redbox_resourced.translation.pod_fields import NODE_FIELDS, pod_field, resource_field
from redbox_resourced.translation.references import PodReferences

NAME = re.compile(POD_ENV_NAME_PATTERN)
WRONG_NAME = "the name of a variable has 1 to 256 printable ASCII characters without ="
LONGEST_VALUE = 128 * 1024  # with its name: Linux's MAX_ARG_STRLEN


def environment(pod: Object, container: Object, references: PodReferences, field: str) -> list[PodEnv]:
    """EnvFrom first, so that env replaces it."""
    variables = []
    for variable in _from_objects(container, references, field):
        references.budget.spend(variable.value)
        variables.append(variable)
    for given in container.get("env") or ():
        where = f"{field}.env[{given['name']}]"
        if NAME.fullmatch(given["name"]) is None:
            raise Unsupported(f"{where}: {WRONG_NAME}: rename it")
        source = given.get("valueFrom")
        if source is not None and given.get("value"):
            raise Unsupported(f"{where}: it has value and valueFrom: keep one")
        with refusals_of(where):
            if source is None:
                variables.append(PodEnv(name=given["name"], value=given.get("value") or ""))
            elif found := _from_source(pod, container, given["name"], source, references, field=where):
                references.budget.spend(found.value)
                variables.append(found)
    return variables


def _from_objects(container: Object, references: PodReferences, field: str) -> Iterator[PodEnv]:
    for source in container.get("envFrom") or ():
        kind, chosen = source_of(source, f"{field}.envFrom")
        values = _values(kind, chosen["name"], references, f"{field}.envFrom")
        for key in sorted(values):
            name = f"{source.get('prefix') or ''}{key}"
            where = f"{field}.envFrom[{name}]"
            if NAME.fullmatch(name) is None:
                raise Unsupported(f"{where}: {WRONG_NAME}: rename the key, or choose the others by env")
            with refusals_of(where):
                yield PodEnv(name=name, value=_text(values[key], where))


def _from_source(
    pod: Object, container: Object, name: str, source: Object, references: PodReferences, *, field: str
) -> PodEnv | None:
    """None: an optional value that does not exist."""
    where = f"{field}.valueFrom"
    kind, chosen = source_of(source, where)
    if kind == "fieldRef":
        path = chosen["fieldPath"]
        if path in NODE_FIELDS:
            return PodEnv(name=name, from_node=NODE_FIELDS[path])
        if path in {"metadata.labels", "metadata.annotations"}:
            raise Unsupported(f"{where}.fieldRef.fieldPath: a variable holds one of them: {path}['KEY']")
        return PodEnv(name=name, value=_literally(pod_field(pod, path, f"{where}.fieldRef")))
    if kind == "resourceFieldRef":
        defaults = references.default_limits
        value = resource_field(pod, chosen, f"{where}.resourceFieldRef", defaults, container["name"])
        return PodEnv(name=name, value=value)
    values = _values(kind, chosen["name"], references, where)
    if chosen["key"] in values:
        return PodEnv(name=name, value=_text(values[chosen["key"]], field))
    if chosen.get("optional"):
        return None
    raise Unsupported(f"{field}.valueFrom: {chosen['name']} has no text with the key {chosen['key']!r}")


def _values(kind: str, name: str, references: PodReferences, field: str) -> Mapping[str, bytes]:
    match kind:
        case "secretRef" | "secretKeyRef":
            return references.secret(name)
        case "configMapRef" | "configMapKeyRef":
            return references.config_map_texts(name)
        case _:
            raise Unsupported(f"{field}: it names no source that this version has")


def _text(value: bytes, field: str) -> str:
    if len(value) > LONGEST_VALUE:
        raise Unsupported(
            f"{field}: its value has {len(value)} bytes, and Linux takes {LONGEST_VALUE} in a variable: "
            "mount it as a file"
        )
    try:
        return _literally(value.decode())
    except UnicodeDecodeError:
        raise Unsupported(f"{field}: its value is not UTF-8 text: mount it as a file") from None


def _literally(value: str) -> str:
    return value.replace("$", "$$")
