"""The pods of a cluster by their roles, and annotations by which the kubelet projects files into them now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_kube.api.kinds import POD
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.status.status_writer import StatusWriter


async def pods_of(
    objects: ObjectClient, controller: SlurmController, roles: Collection[str]
) -> AsyncIterator[Object]:
    """As the API server has them at this moment, page by page."""
    where = ResourcePath(POD, namespace=controller.namespace)
    selection = {"labelSelector": f"{names.LABEL_CLUSTER}={controller.name}"}
    async for page, _ in objects.pages(where, selection):
        for body in page:
            if body["metadata"]["labels"].get(names.LABEL_ROLE) in roles:
                yield body


async def annotate(writer: StatusWriter, pod: Object, annotation: str, value: str) -> None:
    """Unless it has this value; a pod that has gone needs none."""
    metadata = pod["metadata"]
    if (metadata.get("annotations") or {}).get(annotation) != value:
        where = ResourcePath(POD, metadata["name"], metadata["namespace"])
        await writer.objects.merge(where, {"metadata": {"annotations": {annotation: value}}})
        writer.count(POD.name, "patch")
