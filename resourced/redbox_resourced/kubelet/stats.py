"""Statistics of virtual nodes: pods and the usage that Slurm measured, nothing else. Pure.

Without a measurement a number is left out: clients show an absent number as unknown, and an invented one as
true. All nodes share one address, so an answer covers the pods of all, unless the path names a node; no
number is a node's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC

from redbox_api.models import JobUsage
from redbox_kube.api.objects import Object
from redbox_resourced.pods.pod_view import BoundPod

Usage = Mapping[str, JobUsage]
"""By the pod's uid."""
NODE = "redbox-virtual"
METRICS_TYPE = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
CPU, MEMORY = "cpu_usage_seconds_total", "memory_working_set_bytes"
NO_ERROR = """\
# HELP resource_scrape_error 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
"""
NANO = 1_000_000_000


def pod_list(pods: Iterable[BoundPod]) -> Object:
    """For /pods, with the fields that are kept."""
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [_pod(pod) for pod in pods]}


def summary(pods: Iterable[BoundPod], used: Usage) -> Object:
    return {
        "node": {"nodeName": NODE},
        "pods": [_pod_stats(pod, used.get(pod.uid)) for pod in pods if not pod.has_ended],
    }


def resource_metrics(pods: Iterable[BoundPod], used: Usage) -> str:
    """For /metrics/resource; a job counts as its pod's first container."""
    measured = [(pod, used[pod.uid]) for pod in pods if pod.uid in used and not pod.has_ended]
    return "".join(f"{line}\n" for line in _metric_lines(measured)) + NO_ERROR


def _metric_lines(measured: list[tuple[BoundPod, JobUsage]]) -> Iterator[str]:
    for of in ("container", "pod"):
        for name, kind, text in ((CPU, "counter", "seconds of CPU used"), (MEMORY, "gauge", "bytes in use")):
            yield f"# HELP {of}_{name} {text} by the job, as Slurm measured it"
            yield f"# TYPE {of}_{name} {kind}"
            for pod, used in measured:
                container = f'container="{pod.containers[0].name}",' if of == "container" else ""
                value = used.cpu_seconds if name == CPU else used.memory_bytes
                at = int(used.measured_at.timestamp() * 1000)
                labels = f'{container}namespace="{pod.namespace}",pod="{pod.name}"'
                yield f"{of}_{name}{{{labels}}} {value} {at}"


def _pod_stats(pod: BoundPod, used: JobUsage | None) -> Object:
    stats: Object = {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": pod.created_at,
    }
    if used is None:
        return stats
    at = used.measured_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    amounts = {
        "cpu": {"time": at, "usageCoreNanoSeconds": int(used.cpu_seconds * NANO)},
        "memory": {"time": at, "workingSetBytes": used.memory_bytes},
    }
    container = {"name": pod.containers[0].name, "startTime": pod.created_at, **amounts}
    return {**stats, "containers": [container], **amounts}


def _pod(pod: BoundPod) -> Object:
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "creationTimestamp": pod.created_at,
        },
        "spec": {
            "nodeName": pod.node,
            "serviceAccountName": pod.account,
            "containers": [
                {"name": container.name, "image": container.image} for container in pod.containers
            ],
        },
        "status": {"phase": pod.phase},
    }
