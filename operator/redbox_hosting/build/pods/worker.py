"""The pod of a worker: one slurmd, one node of Slurm."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from redbox_hosting.api import names
from redbox_hosting.api.fields import Profile
from redbox_hosting.api.nodeset import NodeSet, ScalingMode
from redbox_hosting.build.config.node_conf import WorkerOptions, WorkerSize, node_options, worker_size
from redbox_hosting.build.pods.munge import munge_volumes, munged
from redbox_hosting.build.pods.parts import (
    MODE_OWNER,
    Manifest,
    SlurmCell,
    container,
    daemon_container,
    dns,
    homes_volume,
    key_sources,
    labels,
    memory_volume,
    mount,
    owner_reference,
    pod_spec,
    users_volume,
    with_user_template,
)
from redbox_shared.sbatch_options import read_duration

ROLE = "slurmd"
CAPABILITIES = ["SETUID", "SETGID", "CHOWN", "KILL", "DAC_OVERRIDE", "FOWNER"]
"""Without KILL cancelled jobs stay, without CHOWN no batch job starts; the last two are for --mpi=pmix."""
PLAIN: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"], "add": CAPABILITIES},
}
PRIVILEGED: Manifest = {"privileged": True}
DAY_S, HOUR_S = 86_400, 3_600
LONGEST_GRACE_S = 30 * DAY_S
NO_EVICTION = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
TOLERATED = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
)
"""Without a limit: Slurm decides what happens to the jobs of a lost node."""
TOLERATED_BY_DAEMONS = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
"""As Kubernetes adds them to the pods of DaemonSets."""
NOT_OF_SLURMD = (
    *("args", "command", "lifecycle", "livenessProbe", "restartPolicy", "restartPolicyRules"),
    "startupProbe",
)

"""What would run something else in the container slurmd, or end it with its jobs."""
NOT_OF_PODS = ("activeDeadlineSeconds",)
NOT_OF_TEMPLATES = (
    names.ANNOTATION_CONDEMNED,
    names.ANNOTATION_CONDEMNED_AT,
    names.ANNOTATION_CREATED_AS,
    names.ANNOTATION_FORCE_DELETE,
)
"""Words about one worker: in a template each new one would go as soon as it is there."""
NOT_REMOVED = ("containers", "tolerations", "volumes")
"""Lists that a user adds to, and that null would empty."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One pod of a NodeSet."""

    node_set: NodeSet
    ordinal: int
    revision: str
    grace_s: int = LONGEST_GRACE_S + HOUR_S
    machine: str = ""
    """The Kubernetes node of the worker, which then has its short name."""

    @property
    def name(self) -> str:
        if self.machine:
            return names.short_name(self.machine)
        return names.node_name(self.node_set.node_prefix, self.ordinal, self.node_set.spec.ordinal_padding)

    @property
    def numbered(self) -> dict[str, str]:
        """The label with its number, if it has one."""
        return {} if self.machine else {names.LABEL_ORDINAL: str(self.ordinal)}


def worker_pod(cell: SlurmCell, plan: WorkerPlan) -> Manifest:
    """It is born protected. Raises BadSize where its limits cannot be a node's size, and BeyondPlain."""
    node_set = plan.node_set
    size = worker_size(node_set)
    options = node_options(node_set, size)
    own = {
        **labels(cell.name, ROLE, node_set.name),
        names.LABEL_NODE_SET: node_set.name,
        **plan.numbered,
        names.LABEL_POD_FORMAT: str(names.POD_FORMAT),
        names.LABEL_PROTECTED: "true",
        names.LABEL_REVISION: plan.revision,
    }
    template = with_user_template(
        cell,
        {
            "metadata": {"labels": own, "annotations": NO_EVICTION},
            "spec": _spec(cell, plan, size, options),
        },
        users_part(node_set).template,
    )
    if plan.machine:
        template["spec"]["affinity"] = _only_on(plan.machine, template["spec"].get("affinity") or {})
    # The user's template cannot take these: they are the node's identity and the fence around its jobs.
    template["spec"] |= {
        "hostname": plan.name,
        "subdomain": names.workers_name(cell.name),
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": plan.grace_s,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template["metadata"],
            "name": plan.name,
            "namespace": cell.namespace,
            "ownerReferences": [owner_reference("NodeSet", node_set.name, str(node_set.metadata["uid"]))],
        },
        "spec": template["spec"],
    }


@dataclass(frozen=True, slots=True)
class UsersPart:
    """What a worker takes of its NodeSet's container and template, and the names of what it does not."""

    slurmd: Manifest
    template: Manifest
    dropped: tuple[str, ...]


def users_part(node_set: NodeSet) -> UsersPart:
    """Fields that would open the fence around the jobs are dropped; a condition names them."""
    dropped: list[str] = []

    def kept(place: str, given: Manifest, keys: Collection[str]) -> Manifest:
        dropped.extend(f"{place}.{key}" for key in keys if key in given)
        return {key: value for key, value in given.items() if key not in keys}

    slurmd = kept("spec.slurmd", node_set.spec.slurmd, NOT_OF_SLURMD)
    pod = node_set.spec.template.get("spec") or {}
    removed = [key for key in NOT_REMOVED if key in pod and pod[key] is None]
    pod = kept("spec.template.spec", pod, [*NOT_OF_PODS, *removed])
    if "containers" in pod:
        pod["containers"] = [
            kept(f"spec.template.spec.containers[{ROLE}]", each, NOT_OF_SLURMD)
            if each.get("name") == ROLE
            else each
            for each in pod["containers"]
        ]
    metadata = node_set.spec.template.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    kept_annotations = kept("spec.template.metadata.annotations", annotations, NOT_OF_TEMPLATES)
    template = {"metadata": {**metadata, "annotations": kept_annotations}, "spec": pod}
    return UsersPart(slurmd, {**node_set.spec.template, **template}, tuple(dropped))


def dropped_fields(node_set: NodeSet) -> tuple[str, ...]:
    """The names of the user's fields that a worker does not take."""
    return users_part(node_set).dropped


def _spec(cell: SlurmCell, plan: WorkerPlan, size: WorkerSize, options: WorkerOptions) -> Manifest:
    node_set = plan.node_set
    is_privileged = cell.spec.redbox.profile is Profile.PRIVILEGED
    users, users_mount = users_volume(cell)
    homes, homes_mount = homes_volume(cell)
    shm = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(size.shm_bytes)}}]
    keys = [] if cell.has_munge else key_sources(cell, jwt=False, mode=MODE_OWNER)
    has_shm = size.shm_bytes > 0
    own = container(
        ROLE,
        cell.image,
        args=[ROLE, "--", "--conf-server", cell.address, "--conf", options.text],
        env=[
            {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        ports=[{"name": ROLE, "containerPort": names.PORT_SLURMD}],
        # No liveness probe: a restart ends the node's jobs.
        readinessProbe=_readiness(cell),
        lifecycle={"preStop": {"exec": {"command": ["redbox-slurmpod", "pre-stop"]}}},
        volumeMounts=[
            *([] if cell.has_munge else [mount("keys", "/etc/slurm", read_only=True)]),
            mount("run", "/run"),
            *([mount("munge", "/run/munge", read_only=True)] if cell.has_munge else []),
            mount("spool", "/var/spool/slurmd"),
            mount("tmp", "/tmp"),  # noqa: S108 (a path in the pod)
            *([mount("shm", "/dev/shm")] if has_shm else []),  # noqa: S108 (a path in the pod)
            *users_mount,
            *homes_mount,
        ],
    )
    own["securityContext"] = PRIVILEGED if is_privileged else PLAIN
    merged = daemon_container(own, users_part(node_set).slurmd)
    _ask_for_limits(merged)
    volumes = [
        *(
            munge_volumes(cell)
            if cell.has_munge
            else [{"name": "keys", "projected": {"defaultMode": MODE_OWNER, "sources": keys}}]
        ),
        memory_volume("run"),
        {"name": "spool", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        *(shm if has_shm else []),
        *users,
        *homes,
        *_claims(plan),
    ]
    return pod_spec(
        [merged],
        volumes,
        security={"seccompProfile": {"type": "Unconfined" if is_privileged else "RuntimeDefault"}},
        serviceAccountName=names.account_name(cell.name, ROLE),
        dnsConfig=dns(cell),
        tolerations=_tolerations(node_set),
        **({"initContainers": [munged(cell)]} if cell.has_munge else {}),
        **({} if node_set.spec.oversubscribe_node else {"affinity": _APART}),
    )


def _tolerations(node_set: NodeSet) -> list[Manifest]:
    made = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in TOLERATED]
    if node_set.spec.scaling_mode is ScalingMode.DAEMON_SET:
        keys = [f"node.kubernetes.io/{each}" for each in TOLERATED_BY_DAEMONS]
        made += [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    return made


def _only_on(machine: str, affinity: Manifest) -> Manifest:
    """The node was chosen by the user's own terms, which are replaced."""
    field = {"key": names.NODE_NAME_FIELD, "operator": "In", "values": [machine]}
    own = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
    }
    return {**affinity, "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), **own}}


_APART: Manifest = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {names.LABEL_ROLE: ROLE}},
            }
        ]
    }
}


def _readiness(cell: SlurmCell) -> Manifest:
    # With munge there is no such socket; the link to the configuration is made when slurmctld has sent it.
    started = ("-e", "/run/slurm/conf") if cell.has_munge else ("-S", "/run/slurm/sack.socket")
    check: Manifest = (
        {"httpGet": {"path": "/readyz", "port": names.PORT_SLURMD}}
        if cell.release.has_metrics
        else {"exec": {"command": ["test", *started]}}
    )
    return {**check, "periodSeconds": 2}


def _ask_for_limits(merged: dict[str, Any]) -> None:
    """Requests equal limits: else slurmd is the first that the kernel ends when a job takes too much."""
    resources = merged.get("resources", {})
    limits = resources.get("limits")
    if limits:
        merged["resources"] = {**resources, "requests": {**resources.get("requests", {}), **limits}}


def _claims(plan: WorkerPlan) -> list[Manifest]:
    """Of volumeClaimTemplates: each worker has its own claim, under the name that StatefulSets use."""
    return [
        {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(template, plan)},
        }
        for template in plan.node_set.spec.volume_claim_templates
    ]


def claim_name(template: Manifest, plan: WorkerPlan) -> str:
    """The claim of one worker."""
    return f"{template['metadata']['name']}-{plan.name}"


def grace_seconds(longest_job_s: int | None, drain_timeout_s: int | None) -> int:
    """How long the kubelet waits for preStop. None: jobs have no limit."""
    if drain_timeout_s is not None:
        return max(drain_timeout_s, 1)
    longest = LONGEST_GRACE_S if longest_job_s is None else min(longest_job_s, LONGEST_GRACE_S)
    return longest + HOUR_S


def time_limit_seconds(text: str) -> int | None:
    """A time limit of Slurm: minutes, MM:SS, H:MM:SS, D-H, D-H:MM or D-H:MM:SS. None: unlimited."""
    if text.upper() in {"UNLIMITED", "INFINITE"}:
        return None
    if (seconds := read_duration(text)) is None:
        raise ValueError(f"{text} is no time limit")
    return seconds
