"""Secrets that the operator makes, and those of users that it reads: got one by one, never listed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping

from redbox_hosting.api.fields import SecretKeyRef
from redbox_kube.api.kinds import SECRET
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.kube_object import KubeObject
from redbox_kube.controller.owned import DesiredObject, OwnedObjects, is_owned
from redbox_kube.controller.steps import StepFailed
from redbox_kube.status.status_writer import StatusWriter


class SecretFiles:
    """The Secrets of the objects that `owned` is for."""

    def __init__(self, writer: StatusWriter, owned: OwnedObjects) -> None:
        self._writer = writer
        self._owned = owned

    async def ensure(
        self,
        owner: KubeObject,
        name: str,
        make: Callable[[], Mapping[str, bytes]],
        is_due: Callable[[Mapping[str, bytes]], bool] = lambda _: False,
    ) -> tuple[Mapping[str, bytes], str]:
        """The files of a Secret of ours, made if it is not there or due; and what was done."""
        where = ResourcePath(SECRET, name, owner.namespace)
        existing = await self._writer.objects.get(where)
        if existing is None:
            body = {"data": _encoded(make()), "type": "Opaque"}
            return decoded(
                await self._owned.create(owner, DesiredObject(SECRET, name, body))
            ), f"Secret {name} created"
        if not is_owned(existing, owner):
            raise StepFailed(
                f"Secret {name} exists and does not belong to {owner.name}: delete it, or rename one"
            )
        files: Mapping[str, bytes] = decoded(existing)
        if not is_due(files):
            return files, ""
        version = {"metadata": {"resourceVersion": existing["metadata"]["resourceVersion"]}}
        files = make()
        if await self._writer.objects.merge(where, {**version, "data": _encoded(files)}) is None:
            raise StepFailed(f"Secret {name} was changed by somebody else at the same moment")
        self._writer.count(SECRET.name, "patch")
        return files, f"Secret {name} renewed"

    async def find(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """The files of a Secret; None if there is none."""
        found = await self._writer.objects.get(ResourcePath(SECRET, name, namespace))
        return None if found is None else decoded(found)

    async def withdraw(self, owner: KubeObject, name: str, key: str) -> None:
        """Remove a key of a Secret of ours, which needs no right to delete Secrets; one of others stays."""
        where = ResourcePath(SECRET, name, owner.namespace)
        existing = await self._writer.objects.get(where)
        if existing is None or not is_owned(existing, owner) or key not in (existing.get("data") or {}):
            return
        version = {"metadata": {"resourceVersion": existing["metadata"]["resourceVersion"]}}
        await self._writer.objects.merge(where, {**version, "data": {key: None}})
        self._writer.count(SECRET.name, "patch")

    async def key(self, namespace: str, ref: SecretKeyRef) -> bytes:
        """A key of a user's Secret; raises StepFailed."""
        return key_in(await self.find(namespace, ref.name), ref)


def key_in(files: Mapping[str, bytes] | None, ref: SecretKeyRef) -> bytes:
    """Of the Secret that `ref` names; raises StepFailed."""
    if files is None:
        raise StepFailed(f"there is no Secret {ref.name} in the namespace: create it")
    if ref.key not in files:
        raise StepFailed(f"Secret {ref.name} has no key {ref.key}: add it")
    return files[ref.key]


def decoded(secret: Object) -> dict[str, bytes]:
    try:
        return {name: base64.b64decode(text) for name, text in (secret.get("data") or {}).items()}
    except binascii.Error as error:
        raise StepFailed(f"Secret {secret['metadata']['name']} cannot be read: {error}") from error


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in files.items()}
