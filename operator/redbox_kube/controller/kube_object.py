"""Objects of our own kinds as controllers read them: a spec, and a status with conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.status.conditions import StatusCondition
from redbox_kube.status.models import StatusPart, StoredObject


class ConditionedStatus(StatusPart):
    """Base of statuses with conditions."""

    observed_generation: int | None = Field(None, description="The generation of the spec that it is about.")
    conditions: list[StatusCondition] = Field(
        [],
        max_length=32,
        description="What is done, and what it waits for.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class KubeObject(StoredObject):
    """Base of our kinds; each adds its `spec` and narrows `status`."""

    status: ConditionedStatus = ConditionedStatus()

    @property
    def place(self) -> Place:
        return self.namespace, self.name

    @property
    def user_input(self) -> tuple[object, ...]:
        """What others change of it: a write of the status leaves it as it is."""
        parts = ("uid", "generation", "deletionTimestamp", "annotations", "labels", "finalizers")
        return tuple(self.metadata.get(part) for part in parts)

    def path(self, kind: Kind) -> ResourcePath:
        return ResourcePath(kind, self.name, self.namespace)

    def owner_reference(self, kind: Kind) -> Object:
        """For the metadata of what it owns: Kubernetes deletes that with it."""
        own = {"apiVersion": kind.api_version, "kind": kind.name, "name": self.name, "uid": self.uid}
        return {**own, "controller": True}


ObjectT = TypeVar("ObjectT", bound=KubeObject)


def read_object(model: type[ObjectT], raw: Mapping[str, Any]) -> ObjectT:
    """The object without its managed fields; a status that the model cannot read is left out."""
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    try:
        return model.model_validate({**raw, "metadata": metadata})
    except ValidationError as error:
        if any(flaw["loc"][:1] != ("status",) for flaw in error.errors(include_url=False)):
            raise
        return model.model_validate({**raw, "metadata": metadata, "status": {}})
