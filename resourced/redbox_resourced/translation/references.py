"""The objects that a pod names, as they were read before the translation."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.limits import ByteBudget


@dataclass(frozen=True)
class PodReferences:
    """What exists of it, by name; an optional one that does not exist is left out."""

    secrets: Mapping[str, Object] = field(default_factory=dict)
    config_maps: Mapping[str, Object] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    """Where the volume of each claim is on Slurm's nodes."""
    read_only_claims: frozenset[str] = frozenset()
    """Those whose volume may only be read."""
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the API server, by the audience that the pod asks for; none where it may have none."""
    default_limits: Mapping[str, str] = field(default_factory=dict)
    """Quantities, where known, in place of limits that a container does not set."""
    inputs: str = ""
    """The versions of all that, as `live_sources` writes them."""
    budget: ByteBudget = field(default_factory=ByteBudget, repr=False)
    _values: dict[str, dict[str, bytes]] = field(default_factory=dict, repr=False)
    """Decoded once: a pod may name one object a thousand times."""

    def secret(self, name: str) -> Mapping[str, bytes]:
        """All its values; none where it does not exist."""
        owner = f"Secret {name}"
        if owner not in self._values:
            self._values[owner] = _decoded((self.secrets.get(name) or {}).get("data"), owner)
        return self._values[owner]

    def config_map(self, name: str) -> Mapping[str, bytes]:
        """All its values, binary ones too; none where it does not exist."""
        owner = f"ConfigMap {name}"
        if owner not in self._values:
            binary = _decoded((self.config_maps.get(name) or {}).get("binaryData"), owner)
            self._values[owner] = {**self.config_map_texts(name), **binary}
        return self._values[owner]

    def config_map_texts(self, name: str) -> Mapping[str, bytes]:
        """Its texts alone: only these can be variables."""
        owner = f"texts of ConfigMap {name}"
        if owner not in self._values:
            texts = (self.config_maps.get(name) or {}).get("data") or {}
            self._values[owner] = {key: text.encode() for key, text in texts.items()}
        return self._values[owner]


def _decoded(values: Mapping[str, str] | None, owner: str) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(value) for key, value in (values or {}).items()}
    except binascii.Error:
        raise Unsupported(f"{owner}: a value is not in base64") from None
