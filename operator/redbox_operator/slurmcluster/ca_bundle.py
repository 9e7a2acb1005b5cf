"""Copies the CA of a red-box from the ConfigMap that its SlurmCluster names.

What makes the keys of a red-box publishes the CA where it may write. So it needs no right to change the
SlurmCluster, whose `endpoint` decides where tokens are sent.
"""

from __future__ import annotations

import base64
import ssl
from http import HTTPStatus

from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, CaBundleSource, SlurmCluster
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_kube.status.status_writer import StatusWriter

WAITS_S, COPIED_S = 2.0, 300.0
"""Until the ConfigMap is read again: while there is no CA, and later for a new one."""
LONGEST = 49_152
"""In bytes: as base64 it fits into `caBundle`."""


async def copy_ca_bundle(writer: StatusWriter, cluster: SlurmCluster, source: CaBundleSource) -> str:
    """Why there is nothing to copy; empty if `caBundle` has it now."""
    where = f"ConfigMap {source.name} in {source.namespace}"
    try:
        found = await writer.objects.get(ResourcePath(kinds.CONFIG_MAP, source.name, source.namespace))
    except ApiRefused as refusal:
        if refusal.status != HTTPStatus.FORBIDDEN:
            raise
        return f"the operator may not read {where}"
    text = ((found or {}).get("data") or {}).get(source.key, "")
    if not text:
        return f"it waits for {source.key} of {where}"
    if len(text.encode()) > LONGEST:
        return f"{source.key} of {where} has more than {LONGEST} bytes"
    try:
        ssl.create_default_context(cadata=text)
    except (ValueError, OSError) as error:  # an SSLError is an OSError
        return f"{source.key} of {where} is not a PEM certificate: {error}"
    if text.encode() != cluster.spec.ca_bundle:
        bundle = base64.b64encode(text.encode()).decode()
        version = {"resourceVersion": cluster.metadata["resourceVersion"]}
        path = ResourcePath(SLURM_CLUSTERS, cluster.name)
        await writer.objects.merge(path, {"metadata": version, "spec": {"caBundle": bundle}})
        writer.count(SLURM_CLUSTERS.name, "patch")
    return ""
