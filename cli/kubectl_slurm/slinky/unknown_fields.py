"""Fields that hosted Slurm's kinds do not have: mistakes, and those of a Slinky that is newer than the rules.

The API server would leave them out, and kubectl refuses them by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubectl_slurm.slinky.edited import EditedObject, Outcome
from kubectl_slurm.slinky.known_fields import FIELDS

WHY = "hosted Slurm has no such field, and no rule for it: correct its name, or remove it"


def name_unknown_fields(edited: EditedObject) -> None:
    """After all rules, which have taken what they know."""
    noted = {note.path for note in edited.notes}
    for path in unknown_fields(edited.spec, FIELDS[edited.kind], "spec"):
        if path not in noted:
            edited.note(path, Outcome.OPEN, WHY)


def unknown_fields(value: object, names: Any, path: str) -> Iterator[str]:  # noqa: ANN401 (of JSON)
    """Their paths. What is below a field that is none itself is not looked at."""
    fields = FIELDS[names] if isinstance(names, str) else names
    if not fields:
        return
    if isinstance(value, list):
        for number, each in enumerate(value):
            name = each.get("name", number) if isinstance(each, dict) else number
            yield from unknown_fields(each, fields, f"{path}[{name}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in fields:
                yield from unknown_fields(each, fields[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
