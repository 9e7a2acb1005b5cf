"""A Pod as a job's request."""

from __future__ import annotations

from typing import NamedTuple

from redbox_api.job_parts import Resources
from redbox_api.models import JobRequest
from redbox_api.pod_parts import PodProgram
from redbox_kube.api.objects import Object
from redbox_kube.slurm_cluster import PodsSpec
from redbox_resourced.translation.annotations import PREFIX, JobOptions, job_options
from redbox_resourced.translation.containers.programs import containers
from redbox_resourced.translation.errors import refusals_of
from redbox_resourced.translation.fields.pod_table import POD
from redbox_resourced.translation.fields.rules import check_fields
from redbox_resourced.translation.host_files import hostname, hosts_file, resolv_conf
from redbox_resourced.translation.references import PodReferences
from redbox_resourced.translation.registries import registries
from redbox_resourced.translation.resources import RequestedResources, requested
from redbox_resourced.translation.volumes import volumes

DEFAULT_GRACE_S = 30
LONGEST_S = 10**9
"""Of the request; Kubernetes' own limit is 2^31 - 1, which some write for never."""
LONGEST_NAME = 128
"""Of a job; a pod's may have 253 characters."""
PULL_S = 1800
"""How long images may be pulled before activeDeadlineSeconds is cut short by the job's time limit."""


class TargetPartition(NamedTuple):
    """The partition of the pod's virtual node."""

    name: str
    """In Slurm."""
    longest_s: int | None = None
    """The longest time limit that it gives a job; None: it sets no limit, or none is published."""


def translate(
    pod: Object, references: PodReferences, settings: PodsSpec, partition: TargetPartition
) -> JobRequest:
    """Raises Unsupported, and ValidationError for a value that the request cannot have."""
    check_fields(pod, POD)
    options, amounts = job_options(pod), requested(pod)
    return JobRequest(
        pod=_program(pod, references, settings, options, amounts),
        name=pod["metadata"]["name"][:LONGEST_NAME],
        partition=partition.name,
        resources=_resources(pod, options, amounts, partition),
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
    return PodProgram(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        restart_policy=spec.get("restartPolicy") or "Always",
        init_containers=containers(pod, references, "initContainers"),
        containers=containers(pod, references, "containers"),
        volumes=volumes(pod, references),
        hostname=hostname(pod, is_nodes_own=options.has_several_nodes or options.mpi is not None),
        hosts_file=hosts_file(pod),
        resolv_conf=resolv_conf(pod),
        termination_grace_s=_grace_s(spec),
        active_deadline_s=_deadline_s(spec),
        scratch=settings.scratch,
        gpus=amounts.gpu_make or options.gpu_make,
        mpi=options.mpi,
        registries=registries(
            (given["name"], references.secret(given["name"]))
            for given in spec.get("imagePullSecrets") or ()
            if given.get("name")
        ),
    )


def _resources(
    pod: Object, options: JobOptions, amounts: RequestedResources, partition: TargetPartition
) -> Resources:
    given = {
        "cpus_per_task": amounts.cpus,
        "mem_per_node": None if amounts.memory_mb is None else f"{amounts.memory_mb}M",
        "gpus_per_node": None if amounts.gpus is None else str(amounts.gpus),
        "time": _time(pod["spec"], partition.longest_s),
        **options.resources,
    }
    with refusals_of(f"metadata.annotations[{PREFIX}*]"):
        return Resources.model_validate(given)


def _options(options: JobOptions, amounts: RequestedResources) -> list[str]:
    return [*options.options, *([f"--tmp={amounts.disk_mb}M"] if amounts.disk_mb else [])]


def _time(spec: Object, longest_s: int | None) -> str | None:
    """In minutes, rounded up, so that the runner's end of the pod comes before Slurm's.

    With more than the partition allows the job would wait for ever, although its deadline may be short.
    """
    deadline = _deadline_s(spec)
    if deadline is None:
        return None
    minutes = -(-(deadline + PULL_S + _grace_s(spec)) // 60)
    return str(minutes if longest_s is None else max(1, min(minutes, longest_s // 60)))


def _deadline_s(spec: Object) -> int | None:
    given = spec.get("activeDeadlineSeconds")
    return None if given is None else min(int(given), LONGEST_S)


def _grace_s(spec: Object) -> int:
    given = spec.get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_S if given is None else min(int(given), LONGEST_S)
