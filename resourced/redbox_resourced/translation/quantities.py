"""Kubernetes' quantities: 500m, 1.5, 2Gi, 1e3."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from redbox_resourced.translation.errors import Unsupported

SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
QUANTITY = re.compile(
    r"([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:([eE][+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)"
)


def parse_quantity(text: object, field: str) -> Decimal:
    """Raises Unsupported with the field's name."""
    found = QUANTITY.fullmatch(str(text))
    if found is None:
        raise Unsupported(f"{field}: {text!r} is not a quantity such as 500m or 2Gi")
    number, exponent, suffix = found.groups()
    return Decimal(number + (exponent or "")) * SUFFIXES[suffix or ""]


def ceil(value: Decimal) -> int:
    return math.ceil(value)
