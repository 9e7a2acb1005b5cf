"""From the kubeconfig to the rights, quotas and images of the namespace."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kubectl_slurm.checks.report import CheckLine, failed, passed, unknown
from kubectl_slurm.errors import PluginError
from kubectl_slurm.kubectl.program import Kubectl, is_in_pod
from kubectl_slurm.kubectl.roles import CLUSTER_SCOPED, role_for

RIGHTS = (
    ("create", "slurmjobs.redbox.dev", "submit"),
    ("list", "slurmjobs.redbox.dev", "queue and history"),
    ("watch", "slurmjobs.redbox.dev", "submit --wait and --follow"),
    ("patch", "slurmjobs.redbox.dev", "cancel, hold, release, requeue, suspend, resume"),
    ("delete", "slurmjobs.redbox.dev", "cancel --delete"),
    ("list", f"{CLUSTER_SCOPED}.redbox.dev", "info"),
    ("get", "pods/log", "logs"),
    ("create", "pods/exec", "shell, exec, cp, forward"),
    ("create", "serviceaccounts/token", "top"),
    ("create", "configmaps", "long scripts"),
)
NEEDED = 5
"""The rights without which nothing works come first."""
NOT_PULLED = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
ROLE_LABEL = "redbox.dev/role"
NUMBER = re.compile(r"([0-9.]+)([kMG]?)")
THOUSANDS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
COUNTED = ("pods", "count/pods", "count/slurmjobs.redbox.dev")
LOGIN_CURE = "log in again, correct the kubeconfig (KUBECONFIG, --context), or wait until the cluster answers"


def kubeconfig(kubectl: Kubectl) -> Iterator[CheckLine]:
    code, out, _ = kubectl.outcome("config", "current-context")
    context = next((word.partition("=")[2] for word in kubectl.options if word.startswith("--context=")), "")
    if code and not context:
        if is_in_pod():
            found = f"none is needed in this pod: its service account, namespace {kubectl.namespace}"
            yield passed("kubeconfig", found)
        else:
            yield unknown("kubeconfig", "it has no current context", "kubectl config use-context NAME")
        return
    yield passed("kubeconfig", f"context {context or out.strip()}, namespace {kubectl.namespace}")


def login(kubectl: Kubectl) -> Iterator[CheckLine]:
    try:
        kubectl.raw("/version")
        user = kubectl.json("auth", "whoami")["status"]["userInfo"]["username"]
    except PluginError as error:
        yield failed("login", str(error), LOGIN_CURE)
        return
    yield passed("login", f"Kubernetes sees you as {user}")


def kinds(kubectl: Kubectl) -> Iterator[CheckLine]:
    code, out, error = kubectl.outcome(
        "api-resources", "--api-group=redbox.dev", "--output=name", "--cached=false"
    )
    if code:
        yield unknown("kinds", error.strip())
        return
    missing = [kind for kind in ("slurmjobs", "slurmclusters") if f"{kind}.redbox.dev" not in out.split()]
    if missing:
        cure = "ask the administrator of this Kubernetes cluster to install Red Box's chart"
        yield failed("kinds", f"this cluster has no {' and no '.join(missing)}", cure)
        return
    yield passed("kinds", "SlurmJob and SlurmCluster, redbox.dev/v1alpha1")


def rights(kubectl: Kubectl) -> Iterator[CheckLine]:
    lacking = [right for right in RIGHTS if not _may(kubectl, *right[:2])]
    if not lacking:
        yield passed("rights", f"all that the commands need in namespace {kubectl.namespace}")
    for verb, kind, use in lacking:
        is_needed = (verb, kind, use) in RIGHTS[:NEEDED]
        found = f"you may not {verb} {kind}, which {use} needs"
        cure = f"ask for it in namespace {kubectl.namespace}: {role_for(verb, kind)}"
        yield (failed if is_needed else unknown)("rights", found, cure)


def _may(kubectl: Kubectl, verb: str, kind: str) -> bool:
    resource, _, sub = kind.partition("/")
    words = [f"--subresource={sub}"] if sub else []
    if resource.startswith(CLUSTER_SCOPED):
        words += ["--all-namespaces"]  # else a RoleBinding seems to suffice
    _, out, _ = kubectl.outcome("auth", "can-i", verb, resource, *words)
    return out.strip() == "yes"


def quota(kubectl: Kubectl) -> Iterator[CheckLine]:
    quotas = kubectl.json("get", "resourcequotas")["items"]
    full = [
        (quota["metadata"]["name"], name, used[name], hard[name])
        for quota in quotas
        for used, hard in [(quota["status"].get("used", {}), quota["status"].get("hard", {}))]
        for name in COUNTED
        if name in hard and is_used_up(used.get(name, 0), hard[name])
    ]
    for quota_name, name, used, hard in full:
        cure = (
            "delete SlurmJobs that have ended, or ask for more: each SlurmJob needs a pod until it is deleted"
        )
        yield failed(f"quota {quota_name}", f"{name}: {used} of {hard} are used", cure)
    if not full:
        yield passed("quota", f"{len(quotas)} quotas, with room" if quotas else "no quota")


def is_used_up(used: object, hard: object) -> bool:
    """Of numbers of objects as Kubernetes writes them: 1000 is 1k."""
    read = [NUMBER.fullmatch(str(quantity)) for quantity in (used, hard)]
    counts = [float(found[1]) * THOUSANDS[found[2]] for found in read if found]
    return len(counts) == len(read) and counts[0] >= counts[1]


def images(kubectl: Kubectl) -> Iterator[CheckLine]:
    pods = kubectl.json("get", "pods", f"--selector={ROLE_LABEL}")["items"]
    stuck = [
        (pod["metadata"]["name"], waiting)
        for pod in pods
        for state in pod.get("status", {}).get("containerStatuses") or ()
        if (waiting := (state.get("state") or {}).get("waiting") or {}).get("reason") in NOT_PULLED
    ]
    for name, waiting in stuck:
        cure = "an administrator of Kubernetes makes Red Box's image reachable for its nodes"
        yield failed("images", f"{name}: {waiting.get('message') or waiting['reason']}", cure)
    if pods and not stuck:
        yield passed("images", f"the {len(pods)} pods of jobs here have theirs")
