"""The one source of a volume, of a projection or of a variable: what was checked is what becomes files."""

from __future__ import annotations

from typing import Any

from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported

BESIDES = frozenset({"name", "prefix", "path", "mode", "user"})
"""Fields that stand beside a source."""


def source_of(given: Object, field: str) -> tuple[str, Any]:
    """Its name and content. Raises Unsupported for any other number, as the API server does."""
    sources = {name: source for name, source in given.items() if name not in BESIDES and source is not None}
    if len(sources) == 1:
        return sources.popitem()
    if sources:
        raise Unsupported(f"{field}: it has {' and '.join(sorted(sources))}: keep exactly one")
    raise Unsupported(f"{field}: it names no source")
