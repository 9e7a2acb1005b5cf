"""Services, NetworkPolicies, the workers' budget and ServiceAccounts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redbox_hosting.api import names
from redbox_hosting.build.pods.merge import strategic_merge
from redbox_hosting.build.pods.parts import Manifest, SlurmCell, labels, metadata, selector

EVERY_EVICTION = 2_147_483_647
"""As minAvailable. With maxUnavailable 0 a budget opens in a scale-in, as it counts the owner's replicas."""
SLURM_ROLES = ("slurmctld", "slurmd", "slurmdbd", "login", "control", "slurmrestd")


def slurmctld_services(cell: SlurmCell) -> list[Manifest]:
    """The address of clients, and the headless Service that gives the pod its name."""
    pods = selector(cell.name, "slurmctld", cell.name)
    own = labels(cell.name, "slurmctld", cell.name)
    address = _service(cell, names.controller_address(cell.name), own, pods, names.PORT_SLURMCTLD)
    address = _with_user_service(address, cell.spec.service)
    headless = _service(
        cell, names.controller_name(cell.name), own, pods, names.PORT_SLURMCTLD, headless=True
    )
    return [address, headless]


def workers_service(cell: SlurmCell) -> Manifest:
    """The names of all workers, also of those that are not ready: jobs run on them."""
    own = labels(cell.name, "slurmd", cell.name)
    pods = {names.LABEL_CLUSTER: cell.name, names.LABEL_ROLE: "slurmd"}
    return _service(cell, names.workers_name(cell.name), own, pods, names.PORT_SLURMD, headless=True)


def logins_service(cell: SlurmCell) -> Manifest:
    """The names of all login pods."""
    own = labels(cell.name, "login", cell.name)
    pods = {names.LABEL_CLUSTER: cell.name, names.LABEL_ROLE: "login"}
    return _service(cell, names.logins_name(cell.name), own, pods, names.PORT_SSHD, headless=True)


def daemon_service(
    cell: SlurmCell,
    role: str,
    instance: str,
    *,
    name: str,
    port: int,
    owner: Manifest,
    user: Manifest | None = None,
) -> Manifest:
    """Of slurmdbd, MariaDB, control or slurmrestd."""
    own = labels(cell.name, role, instance)
    made = _service(cell, name, own, selector(cell.name, role, instance), port)
    made["metadata"]["ownerReferences"] = [owner]
    return _with_user_service(made, user or {})


def ssh_service(cell: SlurmCell, instance: str, owner: Manifest, user: Manifest) -> Manifest:
    """Of the pods of one LoginSet. A client returns to the pod that has its tmux."""
    name = names.login_name(instance)
    made = daemon_service(cell, "login", instance, name=name, port=names.PORT_SSH, owner=owner)
    spec = made["spec"] | {"sessionAffinity": "ClientIP"}
    spec["ports"] = [{"name": "ssh", "port": names.PORT_SSH, "targetPort": names.PORT_SSHD}]
    return _with_user_service({**made, "spec": spec}, user)


def _service(
    cell: SlurmCell,
    name: str,
    own: dict[str, str],
    pods: dict[str, str],
    port: int,
    *,
    headless: bool = False,
) -> Manifest:
    spec: dict[str, Any] = {"selector": pods, "ports": [{"name": "slurm", "port": port, "targetPort": port}]}
    if headless:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name, cell.namespace, own, cell.owner),
        "spec": spec,
    }


def _with_user_service(made: Manifest, user: Manifest) -> Manifest:
    """The user's spec merged in; the pods that it selects stay."""
    spec = strategic_merge(made["spec"], user.get("spec", {})) | {"selector": made["spec"]["selector"]}
    (port, *others) = spec["ports"]
    own_port = {**port, **({"port": user["port"]} if "port" in user else {})}
    own_port |= {"nodePort": user["nodePort"]} if "nodePort" in user else {}
    given = user.get("metadata", {})
    meta = {**made["metadata"], "labels": {**given.get("labels", {}), **made["metadata"]["labels"]}}
    if given.get("annotations"):
        meta["annotations"] = given["annotations"]
    return {**made, "metadata": meta, "spec": {**spec, "ports": [own_port, *others]}}


def network_policies(cell: SlurmCell, operator: dict[str, str]) -> list[Manifest]:
    """One for each role. `operator` is the namespace and the name of the operator's pods' labels.

    Daemons, stepds and srun use ephemeral ports, so pods of one cluster reach each other on all ports.
    Control is for the operator, sshd for everybody. Hosts outside belong to the cluster by their addresses.
    """
    cluster = {names.LABEL_CLUSTER: cell.name}
    from_operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": operator["namespace"]}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": operator["name"]}},
    }
    slurm = {
        "podSelector": {
            "matchLabels": cluster,
            "matchExpressions": [
                {"key": names.LABEL_ROLE, "operator": "In", "values": list(SLURM_ROLES)},
            ],
        }
    }
    members = [slurm, *({"ipBlock": {"cidr": each}} for each in cell.spec.redbox.outside_addresses)]
    rules: dict[str, list[Manifest]] = {
        "slurmctld": [
            {"from": [*members]},
            {"from": [from_operator], "ports": [{"port": names.PORT_SUPERVISOR, "protocol": "TCP"}]},
        ],
        "slurmd": [{"from": [*members]}],
        "login": [{"from": [*members]}, {"ports": [{"port": names.PORT_SSHD, "protocol": "TCP"}]}],
        "slurmdbd": [{"from": [slurm]}],
        "control": [{"from": [from_operator], "ports": [{"port": names.PORT_CONTROL, "protocol": "TCP"}]}],
    }
    isolated = [_isolated(cell, role) for role in ("trial", "homes")]
    return [*(_policy(cell, role, ingress) for role, ingress in rules.items()), *isolated]


def database_policy(cell: SlurmCell, accounting: str, owner: Manifest) -> Manifest:
    """The database of one Accounting, for its own slurmdbd and for backups of its cluster."""
    backup = {names.LABEL_CLUSTER: cell.name, names.LABEL_ROLE: "backup"}
    peers = [
        {"podSelector": {"matchLabels": each}}
        for each in (selector(cell.name, "slurmdbd", accounting), backup)
    ]
    ingress = [{"from": peers, "ports": [{"port": names.PORT_MARIADB, "protocol": "TCP"}]}]
    return _accounting_policy(cell, "mariadb", accounting, ingress, owner)


def shared_slurmdbd_policy(
    cell: SlurmCell, accounting: str, clusters: Iterable[str], owner: Manifest
) -> Manifest:
    """Slurmdbd for the other clusters that report to it: its own one has a policy."""
    expressions = [
        {"key": names.LABEL_CLUSTER, "operator": "In", "values": sorted(clusters)},
        {"key": names.LABEL_ROLE, "operator": "In", "values": list(SLURM_ROLES)},
    ]
    ingress = [
        {
            "from": [{"podSelector": {"matchExpressions": expressions}}],
            "ports": [{"port": names.PORT_SLURMDBD, "protocol": "TCP"}],
        }
    ]
    return _accounting_policy(cell, "slurmdbd", accounting, ingress, owner)


def updates_policy(cell: SlurmCell, accounting: str, clusters: Iterable[str], owner: Manifest) -> Manifest:
    """Slurmctld of these other clusters, for slurmdbd, which sends it each change of accounts and users."""
    name = f"{names.accounting_name(accounting)}-updates"
    expressions = [{"key": names.LABEL_CLUSTER, "operator": "In", "values": sorted(clusters)}]
    selected = {"matchLabels": {names.LABEL_ROLE: "slurmctld"}, "matchExpressions": expressions}
    peers = [{"podSelector": {"matchLabels": selector(cell.name, "slurmdbd", accounting)}}]
    ingress = [{"from": peers, "ports": [{"port": names.PORT_SLURMCTLD, "protocol": "TCP"}]}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name, cell.namespace, labels(cell.name, "slurmctld", accounting), owner),
        "spec": {"podSelector": selected, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _accounting_policy(
    cell: SlurmCell, role: str, accounting: str, ingress: list[Manifest], owner: Manifest
) -> Manifest:
    name = names.database_name(accounting) if role == "mariadb" else names.accounting_name(accounting)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name, cell.namespace, labels(cell.name, role, accounting), owner),
        "spec": {
            "podSelector": {"matchLabels": selector(cell.name, role, accounting)},
            "policyTypes": ["Ingress"],
            "ingress": ingress,
        },
    }


def _policy(cell: SlurmCell, role: str, ingress: list[Manifest]) -> Manifest:
    pods = {names.LABEL_CLUSTER: cell.name, names.LABEL_ROLE: role}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(
            f"{cell.name}-{role}", cell.namespace, labels(cell.name, role, cell.name), cell.owner
        ),
        "spec": {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _isolated(cell: SlurmCell, role: str) -> Manifest:
    """Nothing in and nothing out."""
    made = _policy(cell, role, [])
    return {**made, "spec": {**made["spec"], "policyTypes": ["Ingress", "Egress"], "egress": []}}


def workers_budget(cell: SlurmCell) -> Manifest:
    """No eviction of a protected worker. Evictions do not ask admission policies, so this is essential."""
    pods = {names.LABEL_CLUSTER: cell.name, names.LABEL_PROTECTED: "true"}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(
            names.workers_name(cell.name), cell.namespace, labels(cell.name, "slurmd", cell.name), cell.owner
        ),
        "spec": {
            "minAvailable": EVERY_EVICTION,
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
            "selector": {"matchLabels": pods},
        },
    }


def service_account(cell: SlurmCell, role: str, name: str = "") -> Manifest:
    """Without rights and without a token; of all pods of the role, or of one object's, with its name."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(
            name or names.account_name(cell.name, role),
            cell.namespace,
            labels(cell.name, role, cell.name),
            cell.owner,
        ),
        "automountServiceAccountToken": False,
    }
