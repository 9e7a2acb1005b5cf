"""What the operator makes of a SlurmJob: what each field becomes, and the objects whole (`snapshots/`).

`UPDATE_SNAPSHOTS=1 pytest tests/operator/companion_pods/test_builder.py` writes them again; review the diff.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_api.models import Dependency, JobRequest
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_operator.api.constants import PodRole
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.companion_pods.builder import (
    CompanionProgram,
    companion_pod,
    config_map,
    needs_helper,
    needs_submitter,
    request_digest,
)
from redbox_operator.companion_pods.job_request import digest
from tests.operator.factories import slurm_cluster, slurm_job, with_gateways

PROGRAM = CompanionProgram("registry.example/redbox-companion:1")
SNAPSHOTS = Path(__file__).parent / "snapshots"
SECRET_ENV = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}
RESULTS = {"from": ["out/*.dat", "log"], "volume": CLAIM, "when": "Succeeded", "folder": "run/1"}
PORTS = [{"name": "http", "port": 8080, "targetPort": 8888}, {"name": "ps", "port": 9000, "node": "n2"}]
CASES: dict[str, tuple[SlurmJob, SlurmCluster, int, PodRole]] = {
    "batch": (slurm_job(), slurm_cluster(), 1, PodRole.JOB),
    "second-attempt": (slurm_job(serviceAccountName="farmer"), slurm_cluster(), 2, PodRole.JOB),
    "batch-from": (
        slurm_job(batchFrom={"configMapKeyRef": {"name": "scripts", "key": "cow.sh"}}),
        slurm_cluster(),
        1,
        PodRole.JOB,
    ),
    "container-and-results": (
        slurm_job(
            container={"image": "docker://hub/cow", "args": ["moo"], "registrySecret": "hub"},
            env=[{"name": "PLAIN", "value": "$(NOT_REPLACED)"}, SECRET_ENV],
            results=RESULTS,
        ),
        slurm_cluster(),
        1,
        PodRole.JOB,
    ),
    "gateway": (
        slurm_job(partition="GPU_big", resources={"nodes": 2, "gpusPerNode": "2"}),
        with_gateways("k1"),
        1,
        PodRole.JOB,
    ),
    "virtual": (
        slurm_job(partition="debug", env=[SECRET_ENV], results=RESULTS),
        slurm_cluster(delivery="Virtual"),
        1,
        PodRole.JOB,
    ),
    "virtual-submit": (
        slurm_job(partition="debug", env=[SECRET_ENV], results=RESULTS),
        slurm_cluster(delivery="Virtual"),
        1,
        PodRole.SUBMIT,
    ),
    "virtual-results": (
        slurm_job(partition="debug", env=[SECRET_ENV], results=RESULTS),
        slurm_cluster(delivery="Virtual"),
        2,
        PodRole.HELPER,
    ),
    "ports": (slurm_job("notebook", ports=PORTS), slurm_cluster(), 1, PodRole.JOB),
    "virtual-ports": (
        slurm_job("notebook", partition="debug", ports=PORTS),
        slurm_cluster(delivery="Virtual"),
        1,
        PodRole.HELPER,
    ),
}


def pod_of(case: str) -> dict[str, Any]:
    job, cluster, attempt, role = CASES[case]
    return companion_pod(job, cluster, attempt, PROGRAM, role)


def request_of(job: SlurmJob, *dependencies: Dependency) -> dict[str, Any]:
    wire: dict[str, Any] = json.loads(
        config_map(job, slurm_cluster(), 1, dependencies)["data"]["request.json"]
    )
    return wire


@pytest.mark.parametrize("case", CASES)
def test_the_pod_and_its_request_are_as_they_were_looked_at(case: str) -> None:
    job, cluster, attempt, _ = CASES[case]
    made = yaml.safe_dump_all([config_map(job, cluster, attempt), pod_of(case)], sort_keys=False)
    file = SNAPSHOTS / f"{case}.yaml"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(made)
    assert made == file.read_text()


def test_every_field_of_the_spec_reaches_red_box() -> None:
    report: dict[str, Any] = {
        "partition": "debug",
        "account": "physics",
        "qos": "high",
        "resources": {"nodes": 2, "time": "1:00:00", "memPerNode": "4G"},
        "workingDirectory": "/scratch/x",
        "output": "out-%j",
        "error": "err-%j",
        "array": "0-9%2",
        "begin": "now+1hour",
        "hold": True,
        "options": ["--exclusive"],
    }
    wire = request_of(
        slurm_job(**report, env=[{"name": "A", "value": "1,2\n"}, {"name": "EMPTY"}]), Dependency(key="other")
    )
    assert wire.pop("specDigest").startswith("sha256:")
    assert wire == {
        "batch": "#!/bin/sh\necho moo\n",
        "name": "cow",
        "env": {"A": "1,2\n", "EMPTY": ""},
        "dependencies": [{"key": "other"}],
        **report,
    }
    JobRequest.model_validate(wire)


def test_a_container_reaches_red_box_without_its_registrys_credentials() -> None:
    container = {"image": "docker://hub/cow", "command": ["cowsay"], "options": {"gpus": "nvidia"}}
    assert request_of(slurm_job(container={**container, "registrySecret": "hub"}))["container"] == container


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_comment_in_the_bundle_of_the_red_box_keeps_no_job_from_being_made(encoding: str) -> None:
    certificate = "-----BEGIN CERTIFICATE-----"
    bundle = base64.b64encode(f"# Universität\n{certificate}".encode(encoding)).decode()
    made = config_map(slurm_job(), slurm_cluster(caBundle=bundle))
    assert made["data"]["ca.crt"] == f"# Universitt\n{certificate}"
    assert companion_pod(slurm_job(), slurm_cluster(caBundle=bundle), 1, PROGRAM)["kind"] == "Pod"


def test_a_script_from_elsewhere_is_not_copied_and_a_suspended_job_is_held() -> None:
    wire = request_of(slurm_job(batchFrom={"configMapKeyRef": {"name": "s", "key": "k"}}, suspend=True))
    assert "batch" not in wire
    assert wire["hold"] is True


def test_the_digest_in_the_status_is_of_the_bytes_that_are_frozen() -> None:
    made = config_map(slurm_job(), slurm_cluster())
    assert made["immutable"] is True
    assert request_digest(made) == digest(made["data"]["request.json"])
    assert request_digest(made) != request_digest(config_map(slurm_job(partition="long"), slurm_cluster()))


@pytest.mark.parametrize("case", CASES)
def test_pod_and_request_go_with_their_slurmjob_and_no_label_holds_its_name(case: str) -> None:
    job, cluster, attempt, _ = CASES[case]
    for made in (pod_of(case), config_map(job, cluster, attempt)):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("SlurmJob", job.name, "0aa6-11")
        assert owner["controller"] is True
        assert "cow" not in made["metadata"]["labels"].values()


@pytest.mark.parametrize("case", CASES)
def test_no_pod_has_access_to_kubernetes_or_a_token_for_more_than_one_red_box(case: str) -> None:
    spec = pod_of(case)["spec"]
    assert spec["automountServiceAccountToken"] is False
    tokens = [
        source["serviceAccountToken"]
        for volume in spec.get("volumes", [])
        for source in volume.get("projected", {}).get("sources", [])
    ]
    assert [(item["audience"], item["expirationSeconds"]) for item in tokens] == (
        [] if case == "virtual" else [("redbox.dev/hpc1/4711", 3600)]
    )


@pytest.mark.parametrize("case", CASES)
def test_every_pod_is_of_the_restricted_level_and_is_not_started_again(case: str) -> None:
    spec, (container,) = pod_of(case)["spec"], pod_of(case)["spec"]["containers"]
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_no_value_of_a_secret_is_in_any_object() -> None:
    job, cluster, attempt, _ = CASES["container-and-results"]
    assert "TOKEN" not in config_map(job, cluster, attempt)["data"]["request.json"]
    (container,) = pod_of("container-and-results")["spec"]["containers"]
    (secret,) = [item for item in container["env"] if item["name"] == "REDBOX_ENV_TOKEN"]
    assert secret["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}


def test_a_pattern_of_results_is_not_what_the_kubelet_takes_for_a_variable() -> None:
    pod = companion_pod(
        slurm_job(results={**RESULTS, "from": ["$(REDBOX_KEY)"]}), slurm_cluster(), 1, PROGRAM, PodRole.JOB
    )
    (noted,) = [item for item in pod["spec"]["containers"][0]["env"] if item["name"] == "REDBOX_RESULTS"]
    assert "$$(REDBOX_KEY)" in noted["value"]


def test_a_pod_on_a_virtual_node_waits_for_no_volume_and_for_no_secret() -> None:
    spec = pod_of("virtual")["spec"]
    assert "volumes" not in spec
    assert not any("valueFrom" in item for item in spec["containers"][0]["env"])


@pytest.mark.parametrize(
    ("spec", "submitter", "collector"),
    [
        ({}, False, False),
        ({"env": [{"name": "A", "value": "b"}]}, False, False),
        ({"env": [SECRET_ENV]}, True, False),
        ({"batchFrom": {"configMapKeyRef": {"name": "s", "key": "k"}}}, True, False),
        ({"container": {"image": "docker://cow", "registrySecret": "hub"}}, True, False),
        ({"results": RESULTS}, False, True),
    ],
)
def test_what_needs_a_kubelet_has_a_pod_of_its_own_with_virtual_delivery_only(
    spec: dict[str, Any], *, submitter: bool, collector: bool
) -> None:
    virtual = slurm_cluster(delivery="Virtual")
    assert needs_submitter(slurm_job(**spec), virtual) is submitter
    assert needs_helper(slurm_job(**spec), virtual, job_has_ended=True) is collector
    assert not needs_helper(slurm_job(**spec), virtual, job_has_ended=False)
    assert not needs_submitter(slurm_job(**spec), slurm_cluster())
    assert not needs_helper(slurm_job(**spec), slurm_cluster(), job_has_ended=True)


@pytest.mark.parametrize("role", [PodRole.JOB, PodRole.SUBMIT, PodRole.HELPER])
@pytest.mark.parametrize("delivery", ["Container", "Virtual"])
def test_a_service_selects_exactly_the_pod_that_serves_the_ports(delivery: str, role: PodRole) -> None:
    job = slurm_job(ports=PORTS, env=[SECRET_ENV], results=RESULTS)
    pod = companion_pod(job, slurm_cluster(delivery=delivery), 1, PROGRAM, role)
    (container,) = pod["spec"]["containers"]
    serves = role is PodRole.HELPER or (role is PodRole.JOB and delivery == "Container")
    assert (pod["metadata"]["labels"].get("redbox.dev/slurmjob") == "cow") is serves
    assert ("readinessProbe" in container) is serves
    assert [port["containerPort"] for port in container.get("ports", [])] == ([8080, 9000] if serves else [])


def test_ports_are_no_part_of_the_request_to_red_box() -> None:
    assert request_of(slurm_job(ports=PORTS)) == request_of(slurm_job())
