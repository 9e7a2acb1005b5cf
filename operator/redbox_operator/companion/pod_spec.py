"""Environment, volumes and requests of a job's pod: what the kubelet reads for the companion. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.api.constants import Mode, pod_name
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_fields import Results, Volume
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
SUBMITTING = frozenset({Mode.WHOLE, Mode.SUBMIT_ONLY})
COLLECTING = frozenset({Mode.WHOLE, Mode.RESULTS_ONLY})


@dataclass
class Parts:
    """What comes together in a pod."""

    env: list[Object] = field(default_factory=list)
    volumes: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)
    requests: dict[str, str] = field(default_factory=lambda: {"cpu": "10m", "memory": "24Mi"})
    limits: dict[str, str] = field(default_factory=lambda: {"memory": "64Mi"})
    has_results: bool = False

    def tell(self, settings: Mapping[str, str]) -> None:
        """Settings of the companion, as they are: the kubelet would replace $(NAME)."""
        self.env += [{"name": name, "value": value.replace("$", "$$")} for name, value in settings.items()]

    def mount(self, name: str, folder: str, source: Object, *, read_only: bool = True) -> None:
        """A volume at a folder."""
        self.volumes.append({"name": name, **source})
        self.mounts.append({"name": name, "mountPath": folder, **({"readOnly": True} if read_only else {})})


def parts_of(job: SlurmJob, cluster: SlurmCluster, attempt: int, mode: Mode, *, virtual: bool) -> Parts:
    """All of it. On a virtual node nothing is mounted and nothing runs, so nothing is asked for."""
    parts = Parts()
    parts.tell(
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
    _job_and_token(parts, job, cluster, attempt)
    if mode in SUBMITTING:
        _values_of_the_kubelet(parts, job, attempt)
    if mode in COLLECTING and job.spec.results:
        _results(parts, job.spec.results)
    return parts


def _job_and_token(parts: Parts, job: SlurmJob, cluster: SlurmCluster, attempt: int) -> None:
    parts.tell(
        {
            pod_contract.CA_FILE_PATH: f"{REQUEST_FOLDER}/{CA_FILE}",
            pod_contract.REQUEST_FILE_PATH: f"{REQUEST_FOLDER}/{REQUEST_FILE}",
            pod_contract.TOKEN_FILE_PATH: f"{TOKEN_FOLDER}/{TOKEN_FILE}",
        }
    )
    token = {"audience": cluster.spec.audience, "expirationSeconds": TOKEN_SECONDS, "path": TOKEN_FILE}
    parts.mount("job", REQUEST_FOLDER, {"configMap": {"name": pod_name(job.name, attempt)}})
    parts.mount("token", TOKEN_FOLDER, {"projected": {"sources": [{"serviceAccountToken": token}]}})


def _values_of_the_kubelet(parts: Parts, job: SlurmJob, attempt: int) -> None:
    spec = job.spec
    for variable in spec.env:
        name, source = f"{pod_contract.JOB_VARIABLE_PREFIX}{variable.name}", variable.value_from
        if source and source.field_ref and source.field_ref.field_path == POD_NAME:
            parts.tell({name: pod_name(job.name, attempt)})  # of the job's pod, whichever submits it
        elif source:
            value_from = source.model_dump(by_alias=True, exclude_defaults=True)
            parts.env.append({"name": name, "valueFrom": value_from})
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
        parts.tell({pod_contract.BATCH_FILE_PATH: f"{BATCH_FOLDER}/{BATCH_FILE}"})
        parts.mount("batch", BATCH_FOLDER, {"configMap": {"name": reference.name, "items": items}})


def _results(parts: Parts, results: Results) -> None:
    parts.has_results = True
    folder = f"{RESULTS_FOLDER}/{results.folder}" if results.folder else RESULTS_FOLDER
    told = {"from": results.sources, "when": results.when.value}
    parts.tell({pod_contract.RESULTS: json.dumps(told), pod_contract.RESULTS_FOLDER_PATH: folder})
    parts.mount("results", RESULTS_FOLDER, _volume(results.volume), read_only=False)


def _volume(volume: Volume) -> Object:
    if volume.host_path:  # its place was looked at before (`spec_problems`)
        return {"hostPath": {"path": volume.host_path, "type": "DirectoryOrCreate"}}
    return volume.model_dump(by_alias=True, exclude_none=True, exclude=set(volume.model_extra or {}))
