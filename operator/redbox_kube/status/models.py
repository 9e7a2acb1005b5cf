"""Base models of kinds and their statuses."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic.alias_generators import to_camel

from redbox_shared.printable import printable_texts


class KubeModel(BaseModel):
    """Base of models that the CRD's schema has validated; fields of later versions are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class StoredObject(KubeModel):
    """Base of objects as they are stored at the API server; each adds its `spec` and `status`."""

    metadata: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))

    @property
    def uid(self) -> str:
        return str(self.metadata["uid"])

    @property
    def generation(self) -> int | None:
        return self.metadata.get("generation")

    @property
    def finalizers(self) -> list[str]:
        return list(self.metadata.get("finalizers") or ())

    @property
    def being_deleted(self) -> bool:
        return "deletionTimestamp" in self.metadata


class StatusPart(KubeModel):
    """Base of statuses and their parts: each text is one printable line, also one from outside."""

    @field_validator("*", mode="after")
    @classmethod
    def _printable(cls, value: object) -> object:
        return printable_texts(value)
