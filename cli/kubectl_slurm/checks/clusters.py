"""One SlurmCluster or SlurmEndpoint: operator, red-box, resourced, and the service account's Unix user."""

from __future__ import annotations

from collections.abc import Iterator

from kubectl_slurm.checks.report import CheckLine, failed, passed, unknown
from kubectl_slurm.errors import NotPermitted, ObjectNotFound, PluginError
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.redbox.answers import AnswerInvalid, IdentityAtRedbox
from kubectl_slurm.slurmjobs.redbox.requests import RedboxNotReached, RedboxRefused, access_of
from redbox_shared.explanations.clusters import PODS_READY_REASONS, UNREACHABLE
from redbox_shared.explanations.explanation import explanation_of
from redbox_shared.explanations.redbox_problems import REDBOX_PROBLEMS

OPERATOR_ROLES = {"operator": "every job, and cancel, hold and release", "requeue": "requeue"}
OPERATOR_CURE = (
    "the administrator of Kubernetes reads `kubectl logs -n redbox-system deployment/redbox-operator`"
)
PODS_RUN = frozenset({"CertificateNotSigned", "CertificateExpires"})
"""Reasons of PodsReady with which pods run, and kubectl logs and exec of them may fail."""
FORBIDDEN = 403
VIRTUAL_NODES = "redbox.dev/virtual"
CLUSTER_LABEL = "redbox.dev/cluster"


def cluster_lines(kubectl: Kubectl, cluster: ClusterView) -> Iterator[CheckLine]:
    what, status = cluster.title, cluster.status
    observed, generation = status.get("observedGeneration"), cluster.obj["metadata"].get("generation")
    if not cluster.condition("Reachable") or observed != generation:
        yield failed("operator", f"it has not written the status of {cluster.name}", OPERATOR_CURE)
        return
    if cluster.trouble:
        yield failed(what, cluster.trouble, _cure_of(cluster))
    else:
        versions = f"Slurm {status.get('version', '?')}, red-box {status.get('redboxVersion', '?')}"
        yield passed(what, f"{versions}, partitions {', '.join(cluster.partition_names) or 'none'}")
    yield from operator_roles(cluster)
    if not cluster.is_endpoint:
        yield from resourced(kubectl, cluster)


def _cure_of(cluster: ClusterView) -> str:
    if cluster.is_endpoint:
        return f"the log of its red-box has the reason: kubectl logs redbox-{cluster.name}-0"
    explanation = explanation_of(cluster.trouble, UNREACHABLE)
    return explanation.cure if explanation else "tell the administrators: docs/reference/errors.md"


def operator_roles(cluster: ClusterView) -> Iterator[CheckLine]:
    """As red-box last answered the operator; an older operator has not published them."""
    roles = cluster.status.get("operatorRoles")
    lacking = [role for role in OPERATOR_ROLES if role not in roles] if isinstance(roles, list) else []
    for role in lacking:
        found = (
            f"red-box of {cluster.name} does not give it the role {role}, which {OPERATOR_ROLES[role]} needs"
        )
        whose = "its owner" if cluster.is_endpoint else "the HPC administrator"
        cure = (
            f"{whose} adds {role} to the roles of the operator's rule in mapping.rules, and reloads red-box"
        )
        yield (failed if role == "operator" else unknown)("operator", found, cure)


def resourced(kubectl: Kubectl, cluster: ClusterView) -> Iterator[CheckLine]:
    """By its condition, which stays as it was where resourced has stopped: then its nodes are not Ready."""
    if not cluster.runs_pods:
        yield passed("resourced", f"pods of {cluster.name} are off: SlurmJobs do not need it")
        return
    condition = cluster.condition("PodsReady")
    reason = str(condition.get("reason") or "NotReported")
    found = str(condition.get("message") or reason)
    explanation = PODS_READY_REASONS.get(reason)
    cure = explanation.cure if explanation else "the administrator of Kubernetes reads the log of resourced"
    if reason in PODS_RUN:
        yield unknown("resourced", found, cure)
    elif condition.get("status") != "True" or explanation:
        yield failed("resourced", found, cure)
    elif away := _nodes_not_ready(kubectl, cluster):
        cure = "the administrator of Kubernetes sees why it does not run: kubectl get pods -n redbox-system"
        yield failed("resourced", f"it has stopped: node {away[0]} is not Ready", cure)
    else:
        yield passed("resourced", found)


def _nodes_not_ready(kubectl: Kubectl, cluster: ClusterView) -> list[str]:
    """Virtual nodes; none where the user may not list nodes."""
    selector = f"--selector={VIRTUAL_NODES},{CLUSTER_LABEL}={cluster.name}"
    try:
        nodes = kubectl.json("get", "nodes", selector)["items"]
    except NotPermitted:
        return []
    return [
        str(node["metadata"]["name"])
        for node in nodes
        for condition in node.get("status", {}).get("conditions") or ()
        if condition.get("type") == "Ready" and condition.get("status") != "True"
    ]


def identity(
    kubectl: Kubectl, cluster: ClusterView, account: str
) -> tuple[CheckLine, IdentityAtRedbox | None]:
    """The account's own identity at red-box, where red-box can be asked from here."""
    what = f"service account {account} on {cluster.name}"
    try:
        whoami = access_of(kubectl, cluster, account).get(IdentityAtRedbox, "/v1/whoami")
    except (RedboxNotReached, NotPermitted) as error:
        return unknown(what, f"red-box is not asked for its Unix user: {error}"), None
    except PluginError as error:
        return failed(what, str(error), _cure_without_identity(kubectl, account, error)), None
    return _as_user(what, whoami), whoami


def _as_user(what: str, whoami: IdentityAtRedbox) -> CheckLine:
    if not whoami.user:
        cure = "the HPC administrator adds a rule with `user` and the role submit to mapping.rules"
        return failed(what, "red-box maps it to no Unix user", cure)
    if "submit" not in whoami.roles:
        cure = "the HPC administrator adds the role submit to its rule in mapping.rules"
        return failed(what, f"it is {whoami.user}, and may not submit", cure)
    return passed(what, _rights_in_slurm(whoami))


def _cure_without_identity(kubectl: Kubectl, account: str, error: PluginError) -> str:
    match error:
        case RedboxRefused() if error.title in REDBOX_PROBLEMS and error.status != FORBIDDEN:
            return REDBOX_PROBLEMS[error.title].cure
        case RedboxRefused():
            who = f"namespace {kubectl.namespace} and account {account}"
            return f"the HPC administrator maps {who} in mapping.rules"
        case AnswerInvalid():
            return (
                "its administrator checks which server answers at its `endpoint`, and that server's release"
            )
        case ObjectNotFound():
            return f"`kubectl get serviceaccounts --namespace={kubectl.namespace}` lists those that there are"
    return "the administrators apply again the SlurmCluster that `redbox init` prints"


def _rights_in_slurm(whoami: IdentityAtRedbox) -> str:
    parts = [f"Unix user {whoami.user}"]
    for names, words in (
        (whoami.slurm_accounts, "accounts"),
        (whoami.slurm_qos, "QOS"),
        (whoami.accounts, "only accounts"),
        (whoami.partitions, "only partitions"),
    ):
        if names:
            parts.append(f"{words} {', '.join(names)}")
    return "; ".join(parts)
