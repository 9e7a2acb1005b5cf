"""Lists of metadata only.

Most of such a list is managedFields. Only the few fields below are parsed into Python objects, which takes a
quarter of the time: ten thousand objects are listed every minute.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from redbox_kube.api.nesting_limit import shallow


class _Read(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class ObjectMetadata(_Read):
    """Identity and version of an object."""

    name: str
    namespace: str = ""
    uid: str
    resource_version: str


class _Item(_Read):
    metadata: ObjectMetadata


class _PageMetadata(_Read):
    continues_at: str = Field(default="", alias="continue")


class MetadataPage(_Read):
    """A page of a list, and the token of the next one; empty on the last."""

    metadata: _PageMetadata
    items: list[_Item] | None

    @property
    def continues_at(self) -> str:
        """The token of the next page."""
        return self.metadata.continues_at

    def listed(self) -> list[ObjectMetadata]:
        return [item.metadata for item in self.items or ()]


def page_of(raw: bytes) -> MetadataPage:
    """Parse a page, even if one of its objects is nested deeper than this parser can follow."""
    try:
        return MetadataPage.model_validate_json(raw)
    except ValidationError:
        return MetadataPage.model_validate_json(shallow(raw))
