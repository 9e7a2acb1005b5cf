"""Which pod a request to the kubelet API names, and a client of its red-box."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web

from redbox_api.client import RedboxClient
from redbox_resourced.kubelet.rejection import RequestRejected
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.informer import PodInformer
from redbox_resourced.pods.pod_status import NO_CLUSTER_MESSAGE, NOT_RUN_MESSAGE
from redbox_resourced.pods.pod_view import BoundPod
from redbox_resourced.pods.submission import PodSubmitter


class PodFinder:
    """Finds pods that have a job, or had one."""

    def __init__(self, informer: PodInformer, clusters: ClusterRegistry, submitter: PodSubmitter) -> None:
        self._informer = informer
        self._clusters = clusters
        self._submitter = submitter

    def find(self, request: web.Request) -> tuple[BoundPod, RedboxClient]:
        """The client acts as the pod's own account; raises RequestRejected."""
        pod = self._informer.pods.get((request.match_info["namespace"], request.match_info["pod"]))
        container = request.match_info.get("container")
        if pod is None or (container is not None and container not in pod.container_names):
            what = f"container {container} of this pod" if pod else "this pod"
            raise RequestRejected(f"{what} is not on a virtual node", HTTPStatus.NOT_FOUND)
        if not pod.has_job:
            raise RequestRejected(NOT_RUN_MESSAGE)
        connection = self._clusters.of_node(pod.node)
        if connection is None:
            raise RequestRejected(NO_CLUSTER_MESSAGE, HTTPStatus.SERVICE_UNAVAILABLE)
        return pod, self._submitter.client_for(pod, connection)
