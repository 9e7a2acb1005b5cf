"""What the operator makes of a SlurmJob, object by object."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from redbox_api.models import JobRequest
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.building import companion_pod, config_map
from redbox_operator.kinds import SlurmJob
from redbox_operator.requests import job_request

IMAGE = "registry.example/redbox-companion:1"
CLUSTER = SlurmCluster.model_validate(
    {
        "metadata": {"name": "hpc1"},
        "spec": {
            "endpoint": "https://login.example:8443",
            "caBundle": base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode(),
            "audience": "redbox.dev/hpc1/4711",
        },
    }
)


def slurm_job(**spec: Any) -> SlurmJob:
    metadata = {"name": "cow", "namespace": "farm", "uid": "0aa6-11", "generation": 1}
    return SlurmJob.model_validate(
        {"metadata": metadata, "spec": {"cluster": "hpc1", "batch": "#!/bin/sh\necho moo\n", **spec}}
    )


@pytest.fixture
def pod() -> dict[str, Any]:
    return companion_pod(slurm_job(serviceAccountName="farmer"), CLUSTER, 1, IMAGE)


def test_every_field_of_the_spec_reaches_red_box() -> None:
    job = slurm_job(
        partition="debug",
        account="physics",
        qos="high",
        resources={"nodes": 2, "time": "1:00:00", "memPerNode": "4G"},
        env=[{"name": "A", "value": "1,2\n"}],
        workingDirectory="/scratch/x",
        output="out-%j",
        error="err-%j",
        options=["--exclusive"],
    )
    wire = json.loads(config_map(job, CLUSTER)["data"]["request.json"])
    assert wire == {
        "specDigest": wire["specDigest"],
        "batch": "#!/bin/sh\necho moo\n",
        "name": "cow",
        "partition": "debug",
        "account": "physics",
        "qos": "high",
        "resources": {"nodes": 2, "time": "1:00:00", "memPerNode": "4G"},
        "env": {"A": "1,2\n"},
        "workingDirectory": "/scratch/x",
        "output": "out-%j",
        "error": "err-%j",
        "options": ["--exclusive"],
    }
    assert JobRequest.model_validate(wire) == job_request(job, "debug").model_copy(
        update={"spec_digest": wire["specDigest"]}
    )


def test_the_request_is_frozen() -> None:
    assert config_map(slurm_job(), CLUSTER)["immutable"] is True


def test_pod_and_request_go_with_their_slurmjob(pod: dict[str, Any]) -> None:
    for made in (pod, config_map(slurm_job(), CLUSTER)):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("SlurmJob", "cow", "0aa6-11")
        assert made["metadata"]["name"] == "cow-job"
        assert "cow" not in made["metadata"]["labels"].values()


def test_the_companion_passes_the_restricted_pod_security_level(pod: dict[str, Any]) -> None:
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_companion_has_no_access_to_kubernetes_and_a_token_for_one_red_box(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "farmer"
    (token,) = [volume for volume in spec["volumes"] if "projected" in volume]
    (source,) = token["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "redbox.dev/hpc1/4711"
    assert source["serviceAccountToken"]["expirationSeconds"] <= 3600


def test_a_companion_that_ended_is_not_started_again_by_the_kubelet(pod: dict[str, Any]) -> None:
    assert pod["spec"]["restartPolicy"] == "Never"
