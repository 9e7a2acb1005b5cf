"""A Pod as a job's request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from redbox_api.job_parts import Resources
from redbox_api.models import JobRequest
from redbox_api.pod_parts import PodProgram
from redbox_clusters.slurm_cluster import PodsSpec
from redbox_kube.api.objects import Object
from redbox_resourced.translation.annotations import (
    FIELDS,
    NUMBERS,
    RESOURCES,
    JobOptions,
    job_options,
    path_of,
)
from redbox_resourced.translation.api_tokens import api_server_env
from redbox_resourced.translation.containers.ports import port_variables
from redbox_resourced.translation.containers.programs import containers
from redbox_resourced.translation.errors import Unsupported, refusals_of
from redbox_resourced.translation.fields.pod_table import POD
from redbox_resourced.translation.fields.rules import check_fields
from redbox_resourced.translation.files.volumes import volumes
from redbox_resourced.translation.host_files import hostname, hosts_file, resolv_conf
from redbox_resourced.translation.limits import check_sizes
from redbox_resourced.translation.references import PodReferences
from redbox_resourced.translation.registries import registries
from redbox_resourced.translation.resources import RequestedResources, requested

DEFAULT_GRACE_S = 30
LONGEST_S = 10**9
"""Of the request; Kubernetes' own limit is 2^31 - 1, which some write for never."""
LONGEST_NAME = 128
"""Of a job; a pod's may have 253 characters."""
PATHS = {
    "active_deadline_s": "spec.activeDeadlineSeconds",
    "hosts_file": "spec.hostAliases",
    "init_containers": "spec.initContainers",
    "mpi": path_of("mpi"),
    "options": path_of("options"),
    "registries": "spec.imagePullSecrets",
    "resolv_conf": "spec.dnsConfig",
    "scratch": "spec",
    "termination_grace_s": "spec.terminationGracePeriodSeconds",
}
"""The pod's fields, by those of the request."""
PULL_S = 1800
"""How long images may be pulled before activeDeadlineSeconds is cut short by the job's time limit."""


class TargetPartition(NamedTuple):
    """The partition that a virtual node stands for."""

    name: str
    max_time_s: int | None = None
    """Of a job; None: unlimited, or not known."""
    node_memory_mb: int | None = None
    """Of its largest node; None: not known."""


def check_supported(pod: Object, settings: PodsSpec, partition: TargetPartition) -> None:
    """Raises Unsupported for what the pod alone shows, so that nothing it refers to is read for a refusal."""
    check_fields(pod, POD, settings.users)
    check_sizes(pod["spec"])
    _resources(pod["spec"], job_options(pod), requested(pod), partition)


def translate(
    pod: Object, references: PodReferences, settings: PodsSpec, partition: TargetPartition
) -> JobRequest:
    """Raises Unsupported."""
    check_fields(pod, POD, settings.users)
    options, amounts = job_options(pod), requested(pod)
    references = replace(references, default_limits=_default_limits(pod["spec"], amounts, partition))
    with refusals_of("spec", {**PATHS, **{name: path_of(name) for name in FIELDS}}):
        return JobRequest(
            pod=_program(pod, references, settings, options, amounts),
            name=pod["metadata"]["name"][:LONGEST_NAME],
            partition=partition.name,
            resources=_resources(pod["spec"], options, amounts, partition),
            options=_options(options, amounts),
            **options.fields,
        )


def _program(
    pod: Object,
    references: PodReferences,
    settings: PodsSpec,
    options: JobOptions,
    amounts: RequestedResources,
) -> PodProgram:
    metadata, spec = pod["metadata"], pod["spec"]
    first_env = api_server_env(references, settings)
    if options.dynamic_ports:
        first_env = [*first_env, *port_variables(pod)]
    return PodProgram(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        restart_policy=spec.get("restartPolicy") or "Always",
        init_containers=containers(pod, references, "initContainers", first_env),
        containers=containers(pod, references, "containers", first_env),
        volumes=volumes(pod, references),
        hostname=hostname(pod, is_nodes_own=options.has_several_nodes or options.mpi is not None),
        hosts_file=hosts_file(pod),
        resolv_conf=resolv_conf(pod),
        termination_grace_s=_grace_s(spec),
        active_deadline_s=_deadline_s(spec),
        inputs=references.inputs,
        scratch=settings.scratch,
        gpus=amounts.gpu_make or options.gpu_make,
        dynamic_ports=options.dynamic_ports,
        mpi=options.mpi,
        registries=registries((name, references.secret(name)) for name in _pull_secrets(spec)),
    )


def _pull_secrets(spec: Object) -> Iterable[str]:
    """Each once: a pod may name one a hundred thousand times."""
    return dict.fromkeys(given["name"] for given in spec.get("imagePullSecrets") or () if given.get("name"))


def _resources(
    spec: Object, options: JobOptions, amounts: RequestedResources, partition: TargetPartition
) -> Resources:
    if "qos" in options.fields:  # its flag PartitionTimeLimit replaces the partition's limit
        partition = partition._replace(max_time_s=None)
    given = {
        "cpus_per_task": amounts.cpus,
        "mem_per_node": None if amounts.memory_mb is None else f"{amounts.memory_mb}M",
        "gpus_per_node": None if amounts.gpus is None else str(amounts.gpus),
        "time": None if "time" in options.resources else _time(spec, partition),
        **options.resources,
    }
    annotated = {name: path_of(name) for name in RESOURCES} | {
        ours: path_of(name) for name, ours in NUMBERS.items()
    }
    with refusals_of("spec", annotated):
        return Resources.model_validate(given)


def _options(options: JobOptions, amounts: RequestedResources) -> list[str]:
    return [*options.options, *([f"--tmp={amounts.disk_mb}M"] if amounts.disk_mb else [])]


def references_for_fields(pod: Object, partition: TargetPartition) -> PodReferences:
    """For files of the downward API alone."""
    return PodReferences(default_limits=_default_limits(pod["spec"], requested(pod), partition))


def _default_limits(
    spec: Object, amounts: RequestedResources, partition: TargetPartition
) -> Mapping[str, str]:
    """The pod's own, then the job's; of memory that nobody limits, what a node of the partition has."""
    memory_mb, disk_mb = amounts.memory_mb or partition.node_memory_mb, amounts.disk_mb
    return {
        "cpu": str(amounts.cpus or 1),  # Slurm's own default
        **({"memory": f"{memory_mb}Mi"} if memory_mb else {}),
        **({"ephemeral-storage": f"{disk_mb}Mi"} if disk_mb else {}),
        **((spec.get("resources") or {}).get("limits") or {}),
    }


def _time(spec: Object, partition: TargetPartition) -> str | None:
    """In minutes, rounded up, so that the runner's end of the pod comes before Slurm's where both fit."""
    deadline, most = _deadline_s(spec), partition.max_time_s
    if deadline is None:
        return None
    minutes = -(-(deadline + PULL_S + _grace_s(spec)) // 60)
    if most is None:
        return str(minutes)
    if deadline > most:
        raise Unsupported(
            f"spec.activeDeadlineSeconds: partition {partition.name} ends each job after {most} s (MaxTime): "
            f"write at most {most}, or choose another partition"
        )
    return str(min(minutes, max(1, most // 60)))


def _deadline_s(spec: Object) -> int | None:
    given = spec.get("activeDeadlineSeconds")
    return None if given is None else min(int(given), LONGEST_S)


def _grace_s(spec: Object) -> int:
    given = spec.get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_S if given is None else min(int(given), LONGEST_S)
