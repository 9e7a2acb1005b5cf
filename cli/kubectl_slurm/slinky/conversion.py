"""From a stream of manifests to one with hosted Slurm's kinds, and the notes about it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubectl_slurm.slinky.documents import ManifestDocument
from kubectl_slurm.slinky.edited import (
    NEW_API_VERSION,
    OLD_GROUP,
    OLD_VERSION,
    EditedObject,
    FieldNote,
    Fields,
    Outcome,
    mapping_at,
)
from kubectl_slurm.slinky.kinds import RULES, check_config_maps, convert_kind, list_users_of_tokens
from kubectl_slurm.slinky.unknown_fields import name_unknown_fields
from redbox_shared.hosted_settings.keys import REFUSED_FILES
from redbox_shared.printable import printable

SERVERS_OWN = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation"),
    *("managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"),
)
PARTS = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Conversion:
    """What is written: for each document the object, or the text that it had."""

    documents: list[Fields | str]
    notes: list[FieldNote]
    converted: int

    @property
    def is_open(self) -> bool:
        """Something is refused until it is changed by hand."""
        return any(note.outcome is Outcome.OPEN for note in self.notes)


def convert(documents: Iterable[ManifestDocument], *, profile: str = "Plain", image: str = "") -> Conversion:
    """Objects of other kinds are kept as they are."""
    made: list[EditedObject | ManifestDocument] = []
    notes: list[FieldNote] = []
    config_maps: dict[str, Fields] = {}
    for document in documents:
        value = document.value
        group, _, version = str(value["apiVersion"]).partition("/")
        kind = str(value["kind"])
        if group == OLD_GROUP and version == OLD_VERSION and kind in RULES:
            made.append(_edited(value, profile, image))
            continue
        if kind == "ConfigMap":
            config_maps[str(mapping_at(value, "metadata").get("name"))] = value
        scaler = _scaler(value)
        notes.append(scaler or _passed(value, group))
        made.append(ManifestDocument(value, "") if scaler else document)
    objects = [each for each in made if isinstance(each, EditedObject)]
    for each in objects:
        convert_kind(each)
    list_users_of_tokens(objects)
    check_config_maps(objects, config_maps, REFUSED_FILES)
    for each in objects:
        name_unknown_fields(each)
    written = [each.manifest if isinstance(each, EditedObject) else _kept(each) for each in made]
    notes += [note for each in objects for note in each.notes]
    return Conversion(written, notes, len(objects))


def _edited(value: Fields, profile: str, image: str) -> EditedObject:
    # By way of JSON: an alias of YAML becomes a copy, which a rule can change alone.
    copy: Fields = _without_nulls(json.loads(json.dumps(value, default=str)))
    metadata = mapping_at(copy, "metadata")
    spec = mapping_at(copy, "spec")
    manifest = {"apiVersion": NEW_API_VERSION, "kind": copy["kind"], "metadata": metadata, "spec": spec}
    edited = EditedObject(copy["kind"], manifest, profile == "Privileged", image)
    servers = [key for key in SERVERS_OWN if metadata.pop(key, None) is not None]
    if mapping_at(metadata, "annotations").pop(APPLIED, None) is not None:
        servers.append("annotations")
    if servers:
        edited.note(f"metadata {', '.join(servers)}", Outcome.DROPPED, "the API server and kubectl set it")
    if "status" in copy:
        edited.note("status", Outcome.DROPPED, "the operator sets it")
    if others := sorted(map(str, copy.keys() - PARTS)):
        edited.note(", ".join(others), Outcome.DROPPED, "no object of Kubernetes has it there")
    return edited


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 (of JSON)
    """A field that is null is one that is not given."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _scaler(value: Fields) -> FieldNote | None:
    """A HorizontalPodAutoscaler or a ScaledObject that scales one of these kinds keeps all but that line."""
    target = mapping_at(value, "spec", "scaleTargetRef")
    if not str(target.get("apiVersion")).startswith(f"{OLD_GROUP}/"):
        return None
    target["apiVersion"] = NEW_API_VERSION
    return FieldNote(
        _place(value), "spec.scaleTargetRef.apiVersion", Outcome.CHANGED, f"to {NEW_API_VERSION}"
    )


def _passed(value: Fields, group: str) -> FieldNote:
    if group == OLD_GROUP:
        why = f"only {OLD_VERSION} of {', '.join(RULES)} is converted"
        return FieldNote(_place(value), str(value["apiVersion"]), Outcome.OPEN, why)
    return FieldNote(_place(value), "all", Outcome.KEPT, "it is no object of Slinky's operator")


def _place(value: Fields) -> str:
    return f"{value['kind']} {mapping_at(value, 'metadata').get('name') or '(without a name)'}"


def _kept(document: ManifestDocument) -> Fields | str:
    """Its text, unless a terminal would show another one than there is."""
    is_plain = document.text and printable(document.text, lines=True) == document.text
    return document.text if is_plain else document.value
