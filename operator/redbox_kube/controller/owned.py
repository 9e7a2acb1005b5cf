"""Owned objects: what an object wants to exist is applied, and what it no longer wants is pruned.

`apply` writes by server-side apply with one field manager: fields of others stay, and those that a builder
drops go. An annotation has the revision of what was applied. Nothing is written where it is the same and the
fields still have their values: a change by hand is undone, and a change of the object's status costs nothing.
Objects of others are never written: one that exists under a wanted name and has another owner is reported,
and a write names the uid of the object that was looked at.

Some fields never change, as most of a StatefulSet's. An object of a kind in `replaced` is deleted for such a
change, and created by the next reconciliation; its pods stay, unless a new selector leaves them out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, ResourcePath
from redbox_kube.controller.controller import Watch
from redbox_kube.controller.kube_object import KubeObject
from redbox_kube.controller.steps import StepFailed
from redbox_kube.controller.watched import EVERYWHERE, WatchedKind
from redbox_kube.status.status_writer import StatusWriter

MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_PART = "redbox.dev/part"
"""Of one call of `apply`: what it no longer wants is found by it."""
ANNOTATION_REVISION = "redbox.dev/revision"
NOT_IN_LISTS = frozenset({"apiVersion", "kind"})
"""The items of a list lack them, so nothing could be compared with them; the client adds them."""


class NotOurs(StepFailed):
    """An object of a wanted name exists, and has another owner."""


@dataclass(frozen=True, slots=True)
class DesiredObject:
    """One object as a pure builder made it: labels, annotations, spec or data."""

    kind: Kind
    name: str
    body: Object

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class ManagedKinds:
    """The watches of objects with our label: one of each kind, which the controllers of a process share."""

    def __init__(self, objects: ObjectClient, namespaces: Sequence[str] = EVERYWHERE) -> None:
        self._objects = objects
        self._namespaces = namespaces
        self._watched: dict[Kind, WatchedKind[Object]] = {}

    def of(self, kind: Kind) -> WatchedKind[Object]:
        if kind not in self._watched:
            selection = {"labelSelector": f"{MANAGED_BY}={self._objects.field_manager}"}
            self._watched[kind] = WatchedKind(
                self._objects, kind, namespaces=self._namespaces, selection=selection
            )
        return self._watched[kind]


class OwnedObjects:
    """The objects of some kinds that the objects of one kind own."""

    def __init__(
        self,
        writer: StatusWriter,
        owner_kind: Kind,
        kinds: Iterable[Kind],
        *,
        managed: ManagedKinds | None = None,
        replaced: Iterable[Kind] = (),
    ) -> None:
        """`managed`: watches that others have too, in place of its own."""
        managed = managed or ManagedKinds(writer.objects)
        self._writer = writer
        self._objects = writer.objects
        self._owner_kind = owner_kind
        self._replaced = frozenset(replaced)
        self._normalized: dict[tuple[Kind, Place], tuple[str, str]] = {}
        """Of fields that the API server stores in another form, as 1 for 1000m: revisions of both forms."""
        self._moved: dict[tuple[Kind, Place], str] = {}
        """The part of objects that were applied under another one than the watch has shown so far."""
        self._watched: dict[Kind, WatchedKind[Object]] = {kind: managed.of(kind) for kind in kinds}

    @property
    def watches(self) -> list[Watch]:
        """For the controller of the owners."""
        return [(watched, self._owners_of) for watched in self._watched.values()]

    def of(self, owner: KubeObject, kind: Kind) -> dict[str, Object]:
        """Its objects of this kind by name, for a snapshot."""
        return {
            place[1]: body
            for place, body in self._watched[kind].items_in(owner.namespace)
            if is_owned(body, owner)
        }

    async def apply(self, owner: KubeObject, desired: Iterable[DesiredObject], *, part: str = "all") -> str:
        """Create, change and prune until exactly these exist in `part`; returns what it did, or nothing.

        An object moves to another part if that part is applied first: otherwise it is deleted, and created.
        """
        done, names = [], set()
        for wanted in desired:
            names.add((wanted.kind, wanted.name))
            body = self._body(owner, wanted, {LABEL_PART: part})
            digest = revision(body)
            existing = await self._existing(owner, wanted)
            if existing is None:
                await self._apply(wanted, body, digest, None)
                done.append(f"{wanted} created")
            elif "deletionTimestamp" in existing["metadata"]:
                continue  # its end begins the next reconciliation
            elif not self._is_applied(existing, wanted.kind, body, digest):
                done.append(f"{wanted} {await self._change(wanted, body, digest, existing)}")
        for kind, name, uid in list(self._unwanted(owner, part, names)):
            await self._writer.delete(ResourcePath(kind, name, owner.namespace), uid)
            done.append(f"{kind} {name} deleted")
        return ", ".join(done)

    async def create(self, owner: KubeObject, wanted: DesiredObject) -> Object:
        """The object of this name, created if it does not exist; it is never changed and never pruned."""
        existing = await self._existing(owner, wanted)
        if existing is not None:
            return existing
        where = ResourcePath(wanted.kind, namespace=owner.namespace)
        body = {
            "apiVersion": wanted.kind.api_version,
            "kind": wanted.kind.name,
            **self._body(owner, wanted, {}),
        }
        created = await self._objects.create(where, body)
        if created is None:
            raise StepFailed(f"{wanted} was created by somebody else at the same moment")
        self._writer.count(wanted.kind.name, "create")
        return created

    async def _existing(self, owner: KubeObject, wanted: DesiredObject) -> Object | None:
        """From the watch, or from the API server: one of others has no label, so it is not watched."""
        watched = self._watched.get(wanted.kind)
        existing = None if watched is None else watched.get((owner.namespace, wanted.name))
        if existing is None:
            existing = await self._objects.get(ResourcePath(wanted.kind, wanted.name, owner.namespace))
        if existing is not None and not is_owned(existing, owner):
            raise NotOurs(
                f"{wanted} exists and does not belong to {self._owner_kind} {owner.name}: delete it, or give "
                f"the {self._owner_kind} another name"
            )
        return existing

    def _body(self, owner: KubeObject, wanted: DesiredObject, labels: dict[str, str]) -> Object:
        metadata = wanted.body.get("metadata", {})
        own = {MANAGED_BY: self._objects.field_manager, **labels}
        content = {key: value for key, value in wanted.body.items() if key not in NOT_IN_LISTS}
        return {
            **content,
            "metadata": {
                **metadata,
                "name": wanted.name,
                "namespace": owner.namespace,
                "labels": {**metadata.get("labels", {}), **own},
                "ownerReferences": [owner.owner_reference(self._owner_kind)],
            },
        }

    def _is_applied(self, existing: Object, kind: Kind, body: Object, digest: str) -> bool:
        if _annotations(existing).get(ANNOTATION_REVISION) != digest:
            return False
        found = projection(existing, body)
        return found == body or self._normalized.get((kind, _place(existing))) == (digest, revision(found))

    async def _change(self, wanted: DesiredObject, body: Object, digest: str, existing: Object) -> str:
        try:
            await self._apply(wanted, body, digest, existing)
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.UNPROCESSABLE_ENTITY or wanted.kind not in self._replaced:
                raise
            await self._delete_for_replacement(wanted, body, existing)
            return "deleted, because such a change is refused; it is created again"
        return "changed"

    async def _delete_for_replacement(self, wanted: DesiredObject, body: Object, existing: Object) -> None:
        """Raises ApiRefused where a new object would be refused, too: then the old one stays."""
        place = ResourcePath(wanted.kind, namespace=_place(body)[0])
        named = {"apiVersion": wanted.kind.api_version, "kind": wanted.kind.name, **body}
        await self._objects.create(place, named, dry_run=True)  # is validated before its name is found taken
        selectors = [each.get("spec", {}).get("selector") for each in (existing, body)]
        keeps_pods = "template" in body.get("spec", {}) and selectors[0] == selectors[1]
        policy = "Orphan" if keeps_pods else "Background"
        where, uid = ResourcePath(wanted.kind, wanted.name, place.namespace), existing["metadata"]["uid"]
        await self._writer.delete(where, uid, propagationPolicy=policy)

    async def _apply(self, wanted: DesiredObject, body: Object, digest: str, existing: Object | None) -> None:
        place = _place(body)
        where = ResourcePath(wanted.kind, wanted.name, place[0])
        annotations = {**_annotations(body), ANNOTATION_REVISION: digest}
        metadata = {**body["metadata"], "annotations": annotations}
        if existing is not None:
            metadata["uid"] = existing["metadata"]["uid"]
        written = await self._objects.apply(where, {**body, "metadata": metadata})
        self._writer.count(wanted.kind.name, "apply")
        if existing is not None and _part(existing) != _part(body):
            self._moved[wanted.kind, place] = _part(body)
        else:
            self._moved.pop((wanted.kind, place), None)
        if (stored := projection(written, body)) != body:
            self._normalized[wanted.kind, _place(written)] = digest, revision(stored)

    def _unwanted(
        self, owner: KubeObject, part: str, names: set[tuple[Kind, str]]
    ) -> Iterator[tuple[Kind, str, str]]:
        for kind in self._watched:
            for name, body in self.of(owner, kind).items():
                metadata, key = body["metadata"], (kind, _place(body))
                if self._moved.get(key) == _part(body):
                    del self._moved[key]  # shown by now
                is_of_part = self._moved.get(key, _part(body)) == part
                if is_of_part and (kind, name) not in names and "deletionTimestamp" not in metadata:
                    yield kind, name, metadata["uid"]

    def _owners_of(self, place: Place, body: Object) -> Iterator[Place]:
        for reference in body["metadata"].get("ownerReferences") or ():
            if (reference["apiVersion"], reference["kind"]) == (
                self._owner_kind.api_version,
                self._owner_kind.name,
            ):
                yield place[0], reference["name"]


def revision(body: Object) -> str:
    """A short digest of any JSON."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def projection(existing: Any, wanted: Any) -> Any:  # noqa: ANN401 (any JSON)
    """Of what exists, only the fields that `wanted` has; lists of another length are whole."""
    if isinstance(existing, dict) and isinstance(wanted, dict):
        return {key: projection(existing[key], value) for key, value in wanted.items() if key in existing}
    if isinstance(existing, list) and isinstance(wanted, list) and len(existing) == len(wanted):
        return [projection(item, part) for item, part in zip(existing, wanted, strict=True)]
    return existing


def is_owned(body: Object, owner: KubeObject) -> bool:
    return any(reference["uid"] == owner.uid for reference in body["metadata"].get("ownerReferences") or ())


def _part(body: Object) -> str:
    return str((body["metadata"].get("labels") or {}).get(LABEL_PART, ""))


def _annotations(body: Object) -> dict[str, str]:
    return dict(body["metadata"].get("annotations") or {})


def _place(body: Object) -> Place:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]
