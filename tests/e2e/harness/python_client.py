"""Kubernetes' official client for Python, whose sessions are WebSockets."""

from __future__ import annotations

from typing import Any

from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.config import load_kube_config
from kubernetes.stream import portforward, stream

from tests.e2e.harness.slurm_pods import USER, SlurmPod


class PythonClient:
    """The official client, whose sessions are WebSockets of v4.channel.k8s.io, handed on as they are."""

    def __init__(self, pod: SlurmPod) -> None:
        self._pod = pod
        configuration = Configuration()
        load_kube_config(str(pod.kubectl.kubeconfig), client_configuration=configuration)  # type: ignore[no-untyped-call]
        self._api = CoreV1Api(ApiClient(configuration))

    def exec(self, *command: str, stdin: bool = False) -> Any:  # the package has no types
        return stream(
            self._api.connect_get_namespaced_pod_exec,
            self._pod.name,
            USER,
            command=list(command),
            stdin=stdin,
            stdout=True,
            stderr=True,
            _preload_content=False,
        )

    def forward(self, port: int) -> Any:
        return portforward(
            self._api.connect_get_namespaced_pod_portforward, self._pod.name, USER, ports=str(port)
        )
