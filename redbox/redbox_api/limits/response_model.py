"""The base of responses: of an invalid one, a client builds the first error of each list and mapping alone.

pydantic collects all errors before the first is read: of 690,000 items `{}` they are 1.5 GiB.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema


def _fail_fast(part: Any) -> None:  # noqa: ANN401 (of a schema)
    if isinstance(part, dict):
        if part.get("type") in ("list", "dict"):  # a tuple: a field of that name is a schema, without a hash
            part["fail_fast"] = True
        for inner in part.values():
            _fail_fast(inner)
    elif isinstance(part, list):
        for inner in part:
            _fail_fast(inner)


class ResponseModel(BaseModel):
    """Base of responses."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        _fail_fast(schema)
        return schema
