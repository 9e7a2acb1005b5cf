"""A row of the table for each field: honoured, without meaning on Slurm, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from redbox_clusters.slurm_cluster import PodUsers
from redbox_resourced.translation.errors import UNSUPPORTED, Unsupported


class Treatment(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    MEANINGLESS = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True)
class FieldRule:
    """One field. `note` is for the table; of a refused field it is the sentence that its author reads."""

    treatment: Treatment
    note: str = ""
    fields: Mapping[str, FieldRule] | None = None
    """Of the object, or of each of the list's objects; None: any value, a map of texts for instance."""
    accepted: tuple[object, ...] = ()
    """Values of a refused field that say what is so in any case."""
    with_users: PodUsers | None = None
    """Where the SlurmCluster has this in `pods.users`, the field is not refused."""
    reason: str = UNSUPPORTED
    """Of a pod that is refused for it."""
    is_added: bool = False
    """To pods that run: what is refused of it is checked then, and refuses no pod."""


FieldTable = Mapping[str, FieldRule]


def honoured(note: str = "", fields: FieldTable | None = None) -> FieldRule:
    return FieldRule(Treatment.HONOURED, note, fields)


def added(note: str, fields: FieldTable) -> FieldRule:
    return FieldRule(Treatment.HONOURED, note, fields, is_added=True)


def meaningless(note: str) -> FieldRule:
    return FieldRule(Treatment.MEANINGLESS, note)


def refused(note: str, *accepted: object) -> FieldRule:
    return FieldRule(Treatment.REFUSED, note, accepted=accepted)


def mapped(note: str) -> FieldRule:
    """Refused, unless the SlurmCluster maps users."""
    return FieldRule(Treatment.REFUSED, note, with_users=PodUsers.MAP)


def never(note: str) -> FieldRule:
    """Refused where it is true."""
    return FieldRule(Treatment.REFUSED, note, accepted=(False,))


def only(note: str, *accepted: object, reason: str = UNSUPPORTED) -> FieldRule:
    """Honoured for these values, refused for all others."""
    return FieldRule(Treatment.REFUSED, note, accepted=accepted, reason=reason)


def check_fields(document: Mapping[str, object], table: FieldTable, users: PodUsers) -> None:
    """Raises Unsupported: for a field that has no row first, then for a refused one."""
    found = list(_walk(document, table, ""))
    for path, rule, _ in found:
        if rule is None:
            raise Unsupported(
                f"{path}: this version of Red Box has no rule for this field, so the pod does not run: "
                "leave it out"
            )
    for path, rule, value in found:
        if rule is None or rule.treatment is not Treatment.REFUSED or rule.with_users is users:
            continue
        if value not in rule.accepted:
            raise Unsupported(f"{path}: {rule.note}", rule.reason)


def _walk(
    document: Mapping[str, object], table: FieldTable, parent: str
) -> Iterator[tuple[str, FieldRule | None, object]]:
    for name, value in document.items():
        path = f"{parent}.{name}" if parent else name
        if _is_absent(value):
            continue
        rule = table.get(name)
        yield path, rule, value
        if rule is None or rule.fields is None or rule.is_added:
            continue
        if isinstance(value, Mapping):
            yield from _walk(value, rule.fields, path)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _walk(item, rule.fields, f"{path}[{item.get('name') or index}]")


def _is_absent(value: object) -> bool:
    return value is None or value in ("", [], {})
