"""Virtual nodes and pods on them, as resourced leaves them at the API server."""

from __future__ import annotations

from typing import Any

from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from tests.kube.fakes import FakeApiServer


def has_node(api: FakeApiServer, name: str, cluster: str) -> None:
    labels = {"redbox.dev/virtual": "true", "redbox.dev/cluster": cluster}
    spec = {"providerID": f"redbox://{name.replace('.', '/')}"}
    api.put(ResourcePath(kinds.NODE, name), metadata={"labels": labels}, spec=spec)


def has_pod(
    api: FakeApiServer, name: str, phase: str = "Running", submitted: str = "True", **fields: Any
) -> None:
    condition = {"type": "redbox.dev/Submitted", "status": submitted, "message": "Slurm job 7 of alice"}
    api.put(
        ResourcePath(kinds.POD, name, "farm"),
        metadata=fields.get("metadata", {}),
        spec={"nodeName": fields.get("node", "hpc1.debug")},
        status={"phase": phase, "conditions": [condition]},
    )
