"""An object that is converted: what becomes of each of its fields, with a note for each one that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Fields = dict[str, Any]
EMPTY: tuple[object, ...] = (None, "", [], {})
OLD_GROUP, OLD_VERSION = "slinky.slurm.net", "v1beta1"
NEW_API_VERSION = "slurm.redbox.dev/v1alpha1"


class Outcome(StrEnum):
    """What became of a field."""

    ADDED = "added"
    CHANGED = "changed"
    DIFFERS = "differs"
    DROPPED = "dropped"
    KEPT = "kept"
    OPEN = "not done"
    """It is refused until somebody changes it."""


@dataclass(frozen=True, slots=True)
class FieldNote:
    """One line for the user."""

    place: str
    """The object: kind and name."""
    path: str
    outcome: Outcome
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.path} {self.outcome}: {self.why}"


@dataclass
class EditedObject:
    """One object of Slinky's, which becomes one of ours."""

    kind: str
    manifest: Fields
    allows_privileges: bool
    """The Controller's profile is to be Privileged."""
    image: str
    """For the containers of Slurm's daemons; empty: that of the operator's chart."""
    notes: list[FieldNote] = field(default_factory=list)

    @property
    def place(self) -> str:
        return f"{self.kind} {self.manifest['metadata'].get('name') or '(without a name)'}"

    @property
    def spec(self) -> Fields:
        made: Fields = self.manifest["spec"]
        return made

    @property
    def redbox(self) -> Fields:
        """The part of the spec that Slinky does not have."""
        made: Fields = self.spec.setdefault("redbox", {})
        return made

    def note(self, path: str, outcome: Outcome, why: str) -> None:
        self.notes.append(FieldNote(self.place, path, outcome, why))

    def drop(self, path: str, why: str, parent: Fields, *keys: str) -> None:
        """Remove these fields of `parent`, with one note. `path`: the parent's. Of an empty field none."""
        dropped = [key for key in keys if parent.pop(key, None) not in EMPTY]
        if dropped:
            self.note(f"{path}.{', '.join(dropped)}", Outcome.DROPPED, why)


def mapping_at(parent: object, *keys: str) -> Fields:
    """The object at these keys; an empty one if there is none."""
    for key in keys:
        parent = parent.get(key) if isinstance(parent, dict) else None
    return parent if isinstance(parent, dict) else {}


def list_at(parent: object, *keys: str) -> list[Fields]:
    """The objects of the list at these keys."""
    found = mapping_at(parent, *keys[:-1]).get(keys[-1])
    return [each for each in found if isinstance(each, dict)] if isinstance(found, Sequence) else []
