"""The objects that a pod names, as they were read before the translation."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported


@dataclass(frozen=True)
class PodReferences:
    """What exists of it, by name; an optional one that does not exist is left out."""

    secrets: Mapping[str, Object] = field(default_factory=dict)
    config_maps: Mapping[str, Object] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    """Where the volume of each claim is on Slurm's nodes."""
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For the API server, by the audience that the pod asks for; none where it may have none."""

    def secret(self, name: str) -> dict[str, bytes]:
        """All its values; none where it does not exist."""
        found = self.secrets.get(name) or {}
        return _decoded(found.get("data"), f"Secret {name}")

    def config_map(self, name: str) -> dict[str, bytes]:
        """All its values, binary ones too; none where it does not exist."""
        return {
            **self.config_map_texts(name),
            **_decoded((self.config_maps.get(name) or {}).get("binaryData"), f"ConfigMap {name}"),
        }

    def config_map_texts(self, name: str) -> dict[str, bytes]:
        """Its texts alone: only these can be variables."""
        texts = (self.config_maps.get(name) or {}).get("data") or {}
        return {key: text.encode() for key, text in texts.items()}


def _decoded(values: Mapping[str, str] | None, owner: str) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(value) for key, value in (values or {}).items()}
    except binascii.Error:
        raise Unsupported(f"{owner}: a value is not in base64") from None
