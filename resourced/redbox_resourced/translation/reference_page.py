"""The page for users: each field of a Pod, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator

from redbox_api.pod_parts import MAX_CONTAINERS, MAX_MOUNTS, MAX_VOLUMES
from redbox_resourced.translation.annotations import MEANINGS, PREFIX
from redbox_resourced.translation.fields.pod_table import POD
from redbox_resourced.translation.fields.rules import FieldRule, FieldTable, Treatment
from redbox_resourced.translation.limits import MOST_BYTES, MOST_VALUES

HEAD = f"""\
# Fields of pods on virtual nodes

Made by `make generate` from the table by which resourced translates; do not edit. A pod with a refused field,
or with one that is not on this page, does not run: it fails with reason `Unsupported` and the field's name.
An empty value counts as absent. `[]` are the items of a list; init containers have the fields of containers.

A pod that is too large does not run either. It may have {MAX_CONTAINERS} containers and as many init
containers, {MAX_VOLUMES} volumes, {MAX_MOUNTS} mounts in a container, {MOST_VALUES} values from Secrets,
ConfigMaps and fields, and {MOST_BYTES // 1024**2} MiB of variables and files in all.

"""
LISTED_ONCE = frozenset({"spec.initContainers[]"})
LISTS = frozenset(
    {
        *(
            "containers",
            "initContainers",
            "volumes",
            "env",
            "envFrom",
            "ports",
            "volumeMounts",
            "httpHeaders",
        ),
        *("items", "sources", "hostAliases", "imagePullSecrets", "readinessGates", "options"),
    }
)


def pods_page() -> str:
    rows = [
        f"| `{path}` | {rule.treatment.value if not rule.accepted else _some(rule)} | {_note(rule)} |"
        for path, rule in _rows(POD, "")
    ]
    options = [f"| `{PREFIX}{name}` | {meaning} |" for name, meaning in MEANINGS.items()]
    return HEAD + "\n".join(
        [
            *("| field | on Slurm | remarks |", "|---|---|---|", *rows, ""),
            *("## Annotations", "", "| annotation | what it means |", "|---|---|", *options, ""),
        ]
    )


def _rows(table: FieldTable, parent: str) -> Iterator[tuple[str, FieldRule]]:
    for name, rule in sorted(table.items()):
        path = f"{parent}.{name}" if parent else name
        if rule.fields is not None and name in LISTS:
            path += "[]"
        yield path, rule
        if rule.fields is not None and path not in LISTED_ONCE:
            yield from _rows(rule.fields, path)


def _some(rule: FieldRule) -> str:
    accepted = ", ".join(f"`{str(value).lower() if value is False else value}`" for value in rule.accepted)
    return f"only {accepted}"


def _note(rule: FieldRule) -> str:
    note = rule.note.replace("|", "\\|")
    if rule.treatment is Treatment.REFUSED and note:
        note = f"{note[0].upper()}{note[1:]}."
    return note
