"""Single objects of the bed's API server, without a process for each look: kubectl takes 0.17 s of CPU."""

from __future__ import annotations

import json
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from redbox_bed.core.errors import BedError

LOOK_S = 30.0
PLURALS = {
    "slurmjob": "apis/redbox.dev/v1alpha1/{}slurmjobs",
    "pod": "api/v1/{}pods",
    "pvc": "api/v1/{}persistentvolumeclaims",
    "node": "api/v1/{}nodes",
    "lease": "apis/coordination.k8s.io/v1/{}leases",
    "slurmcluster": "apis/redbox.dev/v1alpha1/{}slurmclusters",
    "persistentvolume": "api/v1/{}persistentvolumes",
    "job": "apis/batch/v1/{}jobs",
    "service": "api/v1/{}services",
    "ingress": "apis/networking.k8s.io/v1/{}ingresses",
    "networkpolicy": "apis/networking.k8s.io/v1/{}networkpolicies",
}


@cache
def _client(kubeconfig: Path, _written_ns: int) -> client.ApiClient:
    """One for each kubeconfig as it was written: another bed has other keys."""
    made: client.ApiClient = config.new_client_from_config(config_file=str(kubeconfig))  # type: ignore[no-untyped-call]
    return made


def get_object(kubeconfig: Path, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    """The object; nothing where there is none."""
    api = _client(kubeconfig, kubeconfig.stat().st_mtime_ns)
    place = PLURALS[kind].format(f"namespaces/{namespace}/" if namespace else "")
    url = f"{api.configuration.host}/{place}/{name}"
    try:
        answer = api.rest_client.pool_manager.request("GET", url, timeout=LOOK_S)
    except urllib3.exceptions.HTTPError as error:
        raise BedError(f"the API server does not answer for {place}/{name}: {error}") from error
    if answer.status == HTTPStatus.NOT_FOUND:
        return {}
    if answer.status != HTTPStatus.OK:
        raise BedError(f"the API server answers {answer.status} for {place}/{name}: {answer.data[:500]!r}")
    return dict(json.loads(answer.data))
