"""The role that gives a right: of Red Box's chart for its kinds, of Kubernetes for pods. Pure."""

from __future__ import annotations

READS = frozenset({"get", "list", "watch"})
CLUSTER_SCOPED = "slurmclusters"
OF_THE_CHART = frozenset({CLUSTER_SCOPED, "slurmendpoints", "slurmjobs", "wlmjobs"})


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
    return f"{binding} to {'view' if verb in READS else 'edit'} gives this right"
