"""Durations as an administrator writes them: `30s`, `10m`, `1h`, `30d`; a bare number is seconds."""

from __future__ import annotations

import math
import re
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_WRITTEN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


class Duration(float):
    """Seconds that print as they are written in the settings file."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Read `1h`, `30` or 30.0; raises ValueError with a sentence."""
        seconds = -1.0
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = float(value)
        elif isinstance(value, str) and (written := _WRITTEN.fullmatch(value)):
            seconds = float(written[1]) * _UNITS[written[2]]
        if not math.isfinite(seconds) or seconds < 0:
            raise ValueError(f"{value!r} is not a duration: write 500ms, 30s, 10m, 1h or 30d")
        return cls(seconds)

    def __str__(self) -> str:
        for unit, seconds in _UNITS.items():
            count = round(self / seconds, 6)
            if count >= 1 and count.is_integer():
                return f"{int(count)}{unit}"
        return f"{float(self):.6f}s" if self else "0s"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": ["string", "number"], "description": "500ms, 30s, 10m, 1h, 30d, or seconds"}
