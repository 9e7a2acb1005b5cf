"""What a list brings of each object where only metadata is asked for.

Most of such a list are managedFields. Read as the few fields below, the rest is passed over and becomes no
Python objects: a quarter of the time, which counts where ten thousand objects are listed every minute.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from redbox_kube.api.nesting_limit import shallow


class _Read(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class ObjectMetadata(_Read):
    """Which object it is, and which version of it."""

    name: str
    namespace: str = ""
    uid: str
    resource_version: str


class _Item(_Read):
    metadata: ObjectMetadata


class _PageMetadata(_Read):
    continues_at: str = Field(default="", alias="continue")


class MetadataPage(_Read):
    """A part of a list, and where the next one begins: nowhere after the last."""

    metadata: _PageMetadata
    items: list[_Item] | None

    @property
    def continues_at(self) -> str:
        """To be asked with."""
        return self.metadata.continues_at

    def listed(self) -> list[ObjectMetadata]:
        """What there is on it."""
        return [item.metadata for item in self.items or ()]


def page_of(raw: bytes) -> MetadataPage:
    """The page, also where one of its objects is nested deeper than this parser follows."""
    try:
        return MetadataPage.model_validate_json(raw)
    except ValidationError:
        return MetadataPage.model_validate_json(shallow(raw))
