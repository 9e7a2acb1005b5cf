"""The role that gives a right: of Red Box's chart for its kinds, of Kubernetes for pods. Pure."""

from __future__ import annotations

READS = frozenset({"get", "list", "watch"})
CLUSTER_SCOPED = "slurmclusters"
OF_THE_CHART = frozenset({CLUSTER_SCOPED, "slurmendpoints", "slurmjobs", "wlmjobs"})
VIEWED = frozenset(
    {"pods", "pods/log", "pods/status", "configmaps", "events", "limitranges", "persistentvolumeclaims"}
    | {"resourcequotas", "serviceaccounts", "services"}
)
"""Kinds that Kubernetes' role `view` reads; Secrets are not among them."""
EDITED = frozenset(
    {"pods", "pods/attach", "pods/exec", "pods/portforward", "configmaps", "persistentvolumeclaims"}
    | {"secrets", "serviceaccounts", "serviceaccounts/token", "services"}
)
"""Kinds that Kubernetes' role `edit` reads and writes."""


def role_for(verb: str, resource: str, *, everywhere: bool = False) -> str:
    """For the end of a sentence; `resource` as in `pods/log`, `everywhere`: in all namespaces."""
    plain = resource.partition(".")[0]
    binding = "a ClusterRoleBinding" if everywhere else "a RoleBinding"
    if plain == CLUSTER_SCOPED:
        if verb not in READS:
            return "only an administrator of Kubernetes has this right"
        return "a ClusterRoleBinding to redbox-cluster-viewer gives this right"
    if plain in OF_THE_CHART:
        return f"{binding} to {'redbox-viewer' if verb in READS else 'redbox-editor'} gives this right"
    if verb in READS and plain in VIEWED:
        return f"{binding} to view gives this right"
    if plain in EDITED:
        return f"{binding} to edit gives this right"
    return "an administrator of Kubernetes gives this right"
