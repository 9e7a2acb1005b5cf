"""What the virtual nodes say in numbers: of what is known, nothing else. Pure.

Nobody measures here what a job uses: an absent number is shown as unknown by those who ask, an invented one
as true. All nodes share one address, so what is asked of one is answered for all; pods have uids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redbox_resourced.bound_pods import BoundPod

Object = dict[str, Any]
NODE = "redbox-virtual"
METRICS_TYPE = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
RESOURCE_METRICS = """\
# HELP resource_scrape_error 1 if there was an error while getting container metrics, 0 otherwise
# TYPE resource_scrape_error gauge
resource_scrape_error 0
"""


def pod_list(pods: Iterable[BoundPod]) -> Object:
    """As /pods has it, with what is kept of each."""
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [_pod(pod) for pod in pods]}


def summary(pods: Iterable[BoundPod]) -> Object:
    """As /stats/summary has it."""
    return {
        "node": {"nodeName": NODE},
        "pods": [
            {
                "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                "startTime": pod.created_at,
            }
            for pod in pods
            if not pod.has_ended
        ],
    }


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
            "containers": [{"name": one.name, "image": one.image} for one in pod.containers],
        },
        "status": {"phase": pod.phase},
    }
