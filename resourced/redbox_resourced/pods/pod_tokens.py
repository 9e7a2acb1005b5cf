"""Tokens for the API server that a pod's volumes ask for: by TokenRequest, each bound to the pod.

Only where the SlurmCluster has `pods.apiTokens` and the chart lists the namespace. Elsewhere the volume that
the API server adds to each pod has no token, and a pod whose author asks for one waits.
"""

from __future__ import annotations

from collections.abc import Collection

from redbox_clusters.slurm_cluster import PodsSpec
from redbox_kube.api.objects import ApiRefused, Object, ObjectClient, PodRef
from redbox_resourced.pods.pod_references import ReferenceMissing
from redbox_resourced.translation.api_tokens import TokenSource, token_lifetime_s, token_sources

DEFAULT_ACCOUNT = "default"


async def read_tokens(
    objects: ObjectClient, pod: Object, settings: PodsSpec, namespaces: Collection[str]
) -> dict[str, str]:
    """By audience. `namespaces`: those that the chart lists. Raises ReferenceMissing."""
    if not settings.api_tokens:
        return {}  # the translation refuses what the author asks for
    namespace = pod["metadata"]["namespace"]
    sources = list(token_sources(pod))
    if namespace not in namespaces:
        _require_none(sources, namespace)
        return {}
    first_of = {source.audience: source for source in reversed(sources)}
    return {audience: await _issued(objects, pod, source) for audience, source in first_of.items()}


def _require_none(sources: list[TokenSource], namespace: str) -> None:
    asked = next((source for source in sources if not source.is_default), None)
    if asked:
        problem = f"the chart's resourced.pods.apiTokenNamespaces does not list the namespace {namespace}"
        raise _not_mounted(asked, problem)


async def _issued(objects: ObjectClient, pod: Object, source: TokenSource) -> str:
    metadata, account = pod["metadata"], pod["spec"].get("serviceAccountName") or DEFAULT_ACCOUNT
    try:
        return await objects.token_for(
            metadata["namespace"],
            account,
            source.audience,
            seconds=token_lifetime_s(pod, source.audience),
            pod=PodRef(metadata["name"], metadata["uid"]),
        )
    except ApiRefused as refusal:
        raise _not_mounted(source, f"failed to fetch token: {refusal}") from refusal


def _not_mounted(source: TokenSource, problem: str) -> ReferenceMissing:
    message = f'MountVolume.SetUp failed for volume "{source.volume}" : {problem}'
    return ReferenceMissing("ContainerCreating", "FailedMount", message)
