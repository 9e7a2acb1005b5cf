"""Environment, volumes and resource requests of a job's pod. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_operator.api.constants import CompanionMode, pod_name
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_fields import PortSpec, ResultsSpec
from redbox_shared import pod_contract
from redbox_shared.pod_contract import (
    BATCH_FILE,
    BATCH_FOLDER,
    CA_FILE,
    REQUEST_FILE,
    REQUEST_FOLDER,
    RESULTS_FOLDER,
    TOKEN_FILE,
    TOKEN_FOLDER,
)

Object = dict[str, Any]
TOKEN_SECONDS = 3600
POD_NAME = "metadata.name"
SUBMITTING = frozenset({CompanionMode.WHOLE, CompanionMode.SUBMIT_ONLY})
HELPING = frozenset({CompanionMode.WHOLE, CompanionMode.HELPER})


@dataclass
class PodParts:
    """The parts of a pod that are collected while it is built."""

    env: list[Object] = field(default_factory=list)
    volumes: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)
    requests: dict[str, str] = field(default_factory=lambda: {"cpu": "10m", "memory": "24Mi"})
    limits: dict[str, str] = field(default_factory=lambda: {"memory": "64Mi"})
    has_results: bool = False
    ports: list[Object] = field(default_factory=list)

    def set_env(self, settings: Mapping[str, str]) -> None:
        """Set variables literally: `$` is doubled, since the kubelet replaces $(NAME)."""
        self.env += [{"name": name, "value": value.replace("$", "$$")} for name, value in settings.items()]

    def mount(self, name: str, folder: str, source: Object, *, read_only: bool = True) -> None:
        """Mount a volume at a folder."""
        self.volumes.append({"name": name, **source})
        self.mounts.append({"name": name, "mountPath": folder, **({"readOnly": True} if read_only else {})})


def parts_of(
    job: SlurmJob,
    cluster: SlurmCluster,
    attempt: int,
    mode: CompanionMode,
    *,
    virtual: bool,
    serves_ports: bool,
) -> PodParts:
    """The parts of this pod. On a virtual node no container runs, so nothing is mounted or requested."""
    parts = PodParts()
    parts.set_env(
        {
            pod_contract.ENDPOINT: cluster.spec.endpoint,
            pod_contract.KEY: job.uid,
            pod_contract.ATTEMPT: str(attempt),
            pod_contract.MODE: mode.value,
        }
    )
    if virtual:
        parts.requests, parts.limits = {"cpu": "0", "memory": "0"}, {}
        return parts
    _mount_request_and_token(parts, job, cluster, attempt)
    if mode in SUBMITTING:
        _add_kubelet_values(parts, job, attempt)
    if mode in HELPING and job.spec.results:
        _mount_results(parts, job.spec.results)
    if mode in HELPING and job.spec.ports and serves_ports:
        _serve_ports(parts, job.spec.ports)
    return parts


def _mount_request_and_token(parts: PodParts, job: SlurmJob, cluster: SlurmCluster, attempt: int) -> None:
    parts.set_env(
        {
            pod_contract.CA_FILE_PATH: f"{REQUEST_FOLDER}/{CA_FILE}",
            pod_contract.REQUEST_FILE_PATH: f"{REQUEST_FOLDER}/{REQUEST_FILE}",
            pod_contract.TOKEN_FILE_PATH: f"{TOKEN_FOLDER}/{TOKEN_FILE}",
        }
    )
    token = {"audience": cluster.spec.audience, "expirationSeconds": TOKEN_SECONDS, "path": TOKEN_FILE}
    parts.mount("job", REQUEST_FOLDER, {"configMap": {"name": pod_name(job.name, attempt)}})
    parts.mount("token", TOKEN_FOLDER, {"projected": {"sources": [{"serviceAccountToken": token}]}})


def _add_kubelet_values(parts: PodParts, job: SlurmJob, attempt: int) -> None:
    spec = job.spec
    for variable in spec.env:
        name, source = f"{pod_contract.JOB_VARIABLE_PREFIX}{variable.name}", variable.value_from
        if source and source.field_ref and source.field_ref.field_path == POD_NAME:
            parts.set_env({name: pod_name(job.name, attempt)})  # also where another pod submits
        elif source:
            parts.env.append({"name": name, "valueFrom": source.emitted()})
    if spec.container and spec.container.registry_secret:
        for name, key in (
            (pod_contract.REGISTRY_USERNAME, "username"),
            (pod_contract.REGISTRY_PASSWORD, "password"),
        ):
            secret_key = {"name": spec.container.registry_secret, "key": key}
            parts.env.append({"name": name, "valueFrom": {"secretKeyRef": secret_key}})
    if spec.batch_from:
        reference = spec.batch_from.config_map_key_ref
        items = [{"key": reference.key, "path": BATCH_FILE}]
        parts.set_env({pod_contract.BATCH_FILE_PATH: f"{BATCH_FOLDER}/{BATCH_FILE}"})
        parts.mount("batch", BATCH_FOLDER, {"configMap": {"name": reference.name, "items": items}})


def _serve_ports(parts: PodParts, ports: list[PortSpec]) -> None:
    """Each connection holds some 0.5 MiB at most, and there are at most 64."""
    parts.requests["memory"], parts.limits["memory"] = "32Mi", "128Mi"
    parts.ports = [{"name": port.name, "containerPort": port.port} for port in ports]
    settings = [
        {
            "name": port.name,
            "port": port.port,
            "targetPort": port.target_port or port.port,
            **({"node": port.node} if port.node else {}),
        }
        for port in ports
    ]
    parts.set_env({pod_contract.PORTS: json.dumps(settings)})


def _mount_results(parts: PodParts, results: ResultsSpec) -> None:
    parts.has_results = True
    folder = f"{RESULTS_FOLDER}/{results.folder}" if results.folder else RESULTS_FOLDER
    settings = {"from": results.sources, "when": results.when.value}
    parts.set_env({pod_contract.RESULTS: json.dumps(settings), pod_contract.RESULTS_FOLDER_PATH: folder})
    parts.mount("results", RESULTS_FOLDER, results.volume.emitted(), read_only=False)
