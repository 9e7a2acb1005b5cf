"""Requests of pods."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from redbox_api.models import JobRequest


def container(**fields: object) -> dict[str, Any]:
    return {"name": "main", "image": "docker://busybox:1", **fields}


def request(pod: Mapping[str, object] | None = None, **fields: object) -> JobRequest:
    whole = {"name": "pod", "namespace": "physics", "uid": "u-1", "containers": [container()], **(pod or {})}
    return JobRequest.model_validate({"pod": whole, **fields})


def files(*paths: str, content: bytes = b"x", **fields: object) -> dict[str, Any]:
    encoded = base64.b64encode(content).decode()
    listed = [{"path": path, "content": encoded} for path in paths]
    return {"volumes": [{"name": "v", "files": {"files": listed, **fields}}]}
