"""`doctor`: the whole way from this terminal to Slurm, as this user: each line is well, or has its cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from kubectl_slurm.errors import NotPermitted, PluginError
from kubectl_slurm.kubectl.program import Kubectl, is_in_pod
from kubectl_slurm.options import Invocation, invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import list_jobs
from kubectl_slurm.slurmjobs.clusters import ClusterView, list_clusters
from kubectl_slurm.slurmjobs.redbox.answers import AnswerInvalid, IdentityAtRedbox
from kubectl_slurm.slurmjobs.redbox.requests import RedboxNotReached, RedboxRefused, access_of
from kubectl_slurm.terminal.screen import one_line

TEXT = "Check the whole way from here to Slurm: each line is well, or has its cure. Then it exits with 1."
CLUSTER_SCOPED = "slurmclusters.redbox.dev"
RIGHTS = (
    ("create", "slurmjobs.redbox.dev", "submit"),
    ("list", "slurmjobs.redbox.dev", "queue and history"),
    ("watch", "slurmjobs.redbox.dev", "submit --wait and --follow"),
    ("patch", "slurmjobs.redbox.dev", "cancel, hold, release, requeue, suspend, resume"),
    ("delete", "slurmjobs.redbox.dev", "cancel --delete"),
    ("list", CLUSTER_SCOPED, "info"),
    ("get", "pods/log", "logs"),
    ("create", "pods/exec", "shell, exec, cp, forward"),
    ("create", "serviceaccounts/token", "top"),
    ("create", "configmaps", "long scripts"),
)
OPERATOR_ROLES = {"operator": "every job, and cancel, hold and release", "requeue": "requeue"}
NEEDED = 5
"""The rights without which nothing works come first."""
NOT_PULLED = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
ROLE_LABEL = "redbox.dev/role"
NUMBER = re.compile(r"([0-9.]+)([kMG]?)")
THOUSANDS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
COUNTED = ("pods", "count/pods", "count/slurmjobs.redbox.dev")


class Health(Enum):
    """How a line of the report is marked."""

    WELL = ("ok", "green")
    NOT_WELL = ("!!", "red")
    UNKNOWN = ("??", "yellow")


@dataclass(frozen=True)
class Examined:
    """One line: what was examined, what was found, and the cure."""

    health: Health
    what: str
    found: str
    cure: str = ""


CERTIFICATE_HEALTH = {
    "CertificateNotSigned": Health.UNKNOWN,
    "CertificateExpires": Health.UNKNOWN,
    "CertificateExpired": Health.NOT_WELL,
}
"""By resourced's reasons of PodsReady: pods run, but kubectl logs and exec of them may fail."""
Examine = Callable[[], Iterator[Examined]]


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT)
    parser.add_argument(
        "--service-account", default="default", metavar="NAME", help="the account that the jobs name"
    )
    options = parser.parse_args(words)
    call = invocation_of(options, given, environment)
    is_well = True
    for line in _lines(call.kubectl, options.service_account):
        is_well = is_well and line.health is not Health.NOT_WELL
        call.screen.write(_written(call, line))
    return 0 if is_well else 1


def _written(call: Invocation, line: Examined) -> str:
    mark, colour = line.health.value
    cure = f"\n   {call.screen.paint('cure:', 'bold')} {one_line(line.cure)}" if line.cure else ""
    return f"{call.screen.paint(mark, colour)} {one_line(line.what)}: {one_line(line.found)}{cure}"


def _lines(kubectl: Kubectl, account: str) -> Iterator[Examined]:
    """In the order of the way; what cannot go on without a step ends with it."""
    yield from _kubeconfig(kubectl)
    login = _login(kubectl)
    yield login
    if login.health is Health.NOT_WELL:
        return
    kinds = _kinds(kubectl)
    yield kinds
    if kinds.health is Health.NOT_WELL:
        return
    clusters: list[ClusterView] = []
    examinations: tuple[tuple[str, Examine], ...] = (
        ("SlurmClusters", partial(_clusters, kubectl, clusters, account)),
        ("rights", partial(_rights, kubectl)),
        ("Unix user", partial(_unix_users, kubectl, clusters, account)),
        ("quota", partial(_quota, kubectl)),
        ("images", partial(_images, kubectl)),
    )
    for what, examine in examinations:
        try:
            yield from examine()
        except NotPermitted as error:
            yield Examined(Health.UNKNOWN, what, str(error))
        except PluginError as error:
            yield Examined(Health.NOT_WELL, what, str(error))


def _kubeconfig(kubectl: Kubectl) -> Iterator[Examined]:
    code, out, _ = kubectl.outcome("config", "current-context")
    context = next((word.partition("=")[2] for word in kubectl.options if word.startswith("--context=")), "")
    if code and not context and is_in_pod():
        found = f"none is needed in this pod: its service account, namespace {kubectl.namespace}"
        yield Examined(Health.WELL, "kubeconfig", found)
        return
    if code and not context:
        yield Examined(
            Health.UNKNOWN, "kubeconfig", "it has no current context", "kubectl config use-context NAME"
        )
        return
    yield Examined(
        Health.WELL, "kubeconfig", f"context {context or out.strip()}, namespace {kubectl.namespace}"
    )


def _login(kubectl: Kubectl) -> Examined:
    try:
        kubectl.raw("/version")
        user = kubectl.json("auth", "whoami")["status"]["userInfo"]["username"]
    except PluginError as error:
        return Examined(Health.NOT_WELL, "login", str(error))
    return Examined(Health.WELL, "login", f"Kubernetes sees you as {user}")


def _kinds(kubectl: Kubectl) -> Examined:
    code, out, error = kubectl.outcome(
        "api-resources", "--api-group=redbox.dev", "--output=name", "--cached=false"
    )
    if code:
        return Examined(Health.UNKNOWN, "kinds", error.strip())
    missing = [kind for kind in ("slurmjobs", "slurmclusters") if f"{kind}.redbox.dev" not in out.split()]
    if missing:
        cure = "ask the administrator of this Kubernetes cluster to install Red Box's chart"
        return Examined(Health.NOT_WELL, "kinds", f"this cluster has no {' and no '.join(missing)}", cure)
    return Examined(Health.WELL, "kinds", "SlurmJob and SlurmCluster, redbox.dev/v1alpha1")


def _clusters(kubectl: Kubectl, found: list[ClusterView], account: str) -> Iterator[Examined]:
    try:
        found += list_clusters(kubectl)
    except NotPermitted as error:
        yield Examined(Health.UNKNOWN, "SlurmClusters", str(error))
        yield _by_last_job(kubectl, None, account, "its SlurmCluster may not be read")
        return
    if not found:
        cure = "an administrator of Kubernetes applies the SlurmCluster that `redbox init` prints; or run a "
        cure += "red-box of your own: docs/users/personal.md"
        yield Examined(Health.NOT_WELL, "SlurmClusters", "none exists, and no SlurmEndpoint here", cure)
    for cluster in found:
        yield from _cluster(cluster)


def _cluster(cluster: ClusterView) -> Iterator[Examined]:
    what, status = cluster.title, cluster.status
    observed, generation = status.get("observedGeneration"), cluster.obj["metadata"].get("generation")
    if not cluster.condition("Reachable") or observed != generation:
        cure = "its administrator reads: kubectl logs -n redbox-system deployment/redbox-operator"
        yield Examined(Health.NOT_WELL, "operator", f"it has not written the status of {cluster.name}", cure)
        return
    yield Examined(Health.WELL, "operator", f"it has written the status of {cluster.name}")
    if cluster.trouble:
        cure = "tell the administrators; jobs go on, and are shown as they were"
        if cluster.is_endpoint:
            cure = f"the log of its red-box has the reason: kubectl logs redbox-{cluster.name}-0"
        yield Examined(Health.NOT_WELL, what, cluster.trouble, cure)
    else:
        versions = f"Slurm {status.get('version', '?')}, red-box {status.get('redboxVersion', '?')}"
        yield Examined(
            Health.WELL, what, f"{versions}, partitions {', '.join(cluster.partition_names) or 'none'}"
        )
    yield from operator_roles(cluster)
    if not cluster.is_endpoint:
        yield from _resourced(cluster)


def operator_roles(cluster: ClusterView) -> Iterator[Examined]:
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
        health = Health.NOT_WELL if role == "operator" else Health.UNKNOWN
        yield Examined(health, "operator", found, cure)


def _resourced(cluster: ClusterView) -> Iterator[Examined]:
    if not (cluster.spec.get("pods") or {}).get("enabled"):
        yield Examined(Health.WELL, "resourced", f"pods of {cluster.name} are off: SlurmJobs do not need it")
        return
    condition = cluster.condition("PodsReady")
    health = Health.WELL if condition.get("status") == "True" else Health.NOT_WELL
    health = CERTIFICATE_HEALTH.get(condition.get("reason", ""), health)
    message = str(
        condition.get("message") or condition.get("reason") or "it has not reported whether pods run"
    )
    yield Examined(health, "resourced", message)


def _rights(kubectl: Kubectl) -> Iterator[Examined]:
    lacking = [right for right in RIGHTS if not _may(kubectl, *right[:2])]
    if not lacking:
        yield Examined(Health.WELL, "rights", f"all that the commands need in namespace {kubectl.namespace}")
        return
    for verb, kind, use in lacking:
        is_needed = (verb, kind, use) in RIGHTS[:NEEDED]
        health = Health.NOT_WELL if is_needed else Health.UNKNOWN
        cure = f"ask for it in namespace {kubectl.namespace}: redbox-editor of the chart, beside edit, has it"
        if kind == CLUSTER_SCOPED:
            cure = "ask for a ClusterRoleBinding to redbox-cluster-viewer of the chart, which is this alone"
        yield Examined(health, "rights", f"you may not {verb} {kind}, which {use} needs", cure)


def _may(kubectl: Kubectl, verb: str, kind: str) -> bool:
    resource, _, sub = kind.partition("/")
    words = [f"--subresource={sub}"] if sub else []
    words += ["--all-namespaces"] if resource == CLUSTER_SCOPED else []  # else a RoleBinding seems to suffice
    _, out, _ = kubectl.outcome("auth", "can-i", verb, resource, *words)
    return out.strip() == "yes"


def _unix_users(kubectl: Kubectl, clusters: Sequence[ClusterView], account: str) -> Iterator[Examined]:
    for cluster in clusters:
        yield _unix_user(kubectl, cluster, account)


def _unix_user(kubectl: Kubectl, cluster: ClusterView, account: str) -> Examined:
    """By the account's own identity at red-box; else by its last job."""
    what = f"service account {account} on {cluster.name}"
    try:
        whoami = access_of(kubectl, cluster, account).get(IdentityAtRedbox, "/v1/whoami")
    except (RedboxNotReached, NotPermitted) as error:
        return _by_last_job(kubectl, cluster, account, str(error))
    except PluginError as error:
        return Examined(Health.NOT_WELL, what, str(error), _cure_without_identity(kubectl, account, error))
    if not whoami.user:
        cure = "the HPC administrator adds a rule with `user` and the role submit in mapping.rules"
        return Examined(Health.NOT_WELL, what, "red-box maps it to no Unix user", cure)
    if "submit" not in whoami.roles:
        cure = "the HPC administrator gives its rule the role submit"
        return Examined(Health.NOT_WELL, what, f"it is {whoami.user}, and may not submit", cure)
    return Examined(Health.WELL, what, _rights_in_slurm(whoami))


def _cure_without_identity(kubectl: Kubectl, account: str, error: PluginError) -> str:
    match error:
        case RedboxRefused():
            who = f"namespace {kubectl.namespace} and account {account}"
            return f"the HPC administrator maps {who} in mapping.rules"
        case AnswerInvalid():
            return (
                "its administrator checks which server answers at its `endpoint`, and that server's release"
            )
    return f"`kubectl get serviceaccounts --namespace={kubectl.namespace}` lists those that there are"


def _rights_in_slurm(whoami: IdentityAtRedbox) -> str:
    parts = [f"Unix user {whoami.user}"]
    for names, words in (
        (whoami.slurm_accounts, "accounts"),
        (whoami.slurm_qos, "QOS"),
        (whoami.partitions, "only partitions"),
    ):
        if names:
            parts.append(f"{words} {', '.join(names)}")
    return "; ".join(parts)


def _by_last_job(kubectl: Kubectl, cluster: ClusterView | None, account: str, why: str) -> Examined:
    what = f"service account {account}" + (f" on {cluster.name}" if cluster else "")
    jobs = [
        job
        for job in list_jobs(kubectl)
        if job.service_account == account and (not cluster or job.cluster_key in {"", cluster.key})
    ]
    last = next((job for job in reversed(jobs) if job.user or job.finished), None)
    if last is not None and last.phase == "Failed" and not last.in_slurm:
        found = f"its last SlurmJob, {last.name}, was refused: {last.message}"
        cure = f"`kubectl slurm explain {last.name}` says what to do about it"
        return Examined(Health.NOT_WELL, what, found, cure)
    if last is not None and last.user:
        found = f"its last SlurmJob, {last.name}, was Unix user {last.user} ({why})"
        return Examined(Health.WELL, what, found)
    cure = "submit a job: `kubectl slurm submit --follow --wrap id` shows whose it is"
    return Examined(Health.UNKNOWN, what, why, cure)


def _quota(kubectl: Kubectl) -> Iterator[Examined]:
    quotas = kubectl.json("get", "resourcequotas")["items"]
    full = [
        (quota["metadata"]["name"], name, used[name], hard[name])
        for quota in quotas
        for used, hard in [(quota["status"].get("used", {}), quota["status"].get("hard", {}))]
        for name in COUNTED
        if name in hard and is_used_up(used.get(name, 0), hard[name])
    ]
    for quota, name, used, hard in full:
        cure = (
            "delete SlurmJobs that have ended, or ask for more: each SlurmJob needs a pod until it is deleted"
        )
        yield Examined(Health.NOT_WELL, f"quota {quota}", f"{name}: {used} of {hard} are used", cure)
    if not full:
        yield Examined(Health.WELL, "quota", f"{len(quotas)} quotas, with room" if quotas else "no quota")


def is_used_up(used: object, hard: object) -> bool:
    """Of numbers of objects as Kubernetes writes them: 1000 is 1k."""
    read = [NUMBER.fullmatch(str(quantity)) for quantity in (used, hard)]
    counts = [float(found[1]) * THOUSANDS[found[2]] for found in read if found]
    return len(counts) == len(read) and counts[0] >= counts[1]


def _images(kubectl: Kubectl) -> Iterator[Examined]:
    pods = kubectl.json("get", "pods", f"--selector={ROLE_LABEL}")["items"]
    stuck = [
        (pod["metadata"]["name"], waiting)
        for pod in pods
        for state in pod.get("status", {}).get("containerStatuses") or ()
        if (waiting := (state.get("state") or {}).get("waiting") or {}).get("reason") in NOT_PULLED
    ]
    for name, waiting in stuck:
        cure = "an administrator of Kubernetes makes Red Box's image reachable for its nodes"
        yield Examined(
            Health.NOT_WELL, "images", f"{name}: {waiting.get('message') or waiting['reason']}", cure
        )
    if stuck:
        return
    if pods:
        yield Examined(Health.WELL, "images", f"the {len(pods)} pods of jobs here have theirs")
    else:
        yield Examined(Health.UNKNOWN, "images", "no job has a pod here yet")
