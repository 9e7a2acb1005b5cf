"""The examples of pods: each becomes a job's request, as the API server would hand it to resourced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_api.models import JobRequest
from redbox_resourced.pods.selection import names_virtual_node
from redbox_resourced.translation.errors import Unsupported
from redbox_shared.sbatch_options import read_duration
from tests.resourced.translation.factories import TOKEN_MOUNT, TOKEN_VOLUME, requested

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "examples" / "pods").rglob("*.yaml"))
NAMES = [str(file.relative_to(ROOT)) for file in FILES]
HALF_AN_HOUR_S = 1800
CLAIM = "/home/alice/redbox/volumes/alice-results"
CA = {"kube-root-ca.crt": {"data": {"ca.crt": "PEM"}}}
KINDS = {
    "Pod": "v1",
    "PersistentVolumeClaim": "v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "Service": "v1",
}


def objects(file: Path) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(file.read_text())]


def template_of(given: dict[str, Any]) -> dict[str, Any] | None:
    """The pod that the object is, or makes; None for a claim or a Service."""
    spec = given["spec"]
    if given["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return given if given["kind"] == "Pod" else spec.get("template")


def stored(template: dict[str, Any]) -> dict[str, Any]:
    """The pod as the API server stores it, with the token volume of its service account."""
    spec = template["spec"]
    identity = {"namespace": "alice", "name": "example", "uid": "uid-1"}
    containers = [
        {**each, "volumeMounts": [*each.get("volumeMounts", ()), TOKEN_MOUNT]} for each in spec["containers"]
    ]
    volumes = [*spec.get("volumes", ()), TOKEN_VOLUME]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template.get("metadata", {}), **identity},
        "spec": {**spec, "containers": containers, "volumes": volumes, "nodeName": "hpc1-debug"},
    }


def templates() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, file in zip(NAMES, FILES, strict=True):
        for given in objects(file):
            if (template := template_of(given)) is not None:
                yield name, template


TEMPLATES = [*templates()]
each_template = pytest.mark.parametrize(
    "template", [template for _, template in TEMPLATES], ids=[name for name, _ in TEMPLATES]
)


def request_of(template: dict[str, Any], *, max_time_s: int | None = None) -> JobRequest:
    return requested(stored(template), max_time_s=max_time_s, claims={"results": CLAIM}, config_maps=CA)


def example(name: str) -> dict[str, Any]:
    return next(template for path, template in TEMPLATES if path == f"examples/pods/{name}")


@each_template
def test_an_example_becomes_a_job(template: dict[str, Any]) -> None:
    assert request_of(template).pod is not None


@each_template
def test_an_example_fits_a_partition_of_half_an_hour(template: dict[str, Any]) -> None:
    """As `debug` of the demo, and of many sites, is."""
    time = request_of(template, max_time_s=HALF_AN_HOUR_S).resources.time
    seconds = read_duration(time) if time else 0
    assert seconds is not None
    assert seconds <= HALF_AN_HOUR_S


@each_template
def test_an_example_names_a_virtual_node_and_tolerates_its_taint(template: dict[str, Any]) -> None:
    assert names_virtual_node(stored(template))
    assert {"key": "redbox.dev/slurm", "operator": "Exists", "effect": "NoSchedule"} in template["spec"][
        "tolerations"
    ]
    assert set(template["spec"]["nodeSelector"]) == {"redbox.dev/cluster", "redbox.dev/partition"}


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_an_example_is_what_its_kind_asks_for(file: Path) -> None:
    for given in objects(file):
        assert given["apiVersion"] == KINDS[given["kind"]]
        template = template_of(given)
        policy = template["spec"].get("restartPolicy", "Always") if template else None
        if given["kind"] == "Deployment":
            assert template is not None
            assert policy == "Always"
            assert given["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
        elif given["kind"] in {"Job", "CronJob"}:
            assert policy == "Never"


def test_an_example_that_would_be_refused_fails_here() -> None:
    template = example("busybox.yaml")
    spoiled = {**template, "spec": {**template["spec"], "hostPID": True}}
    with pytest.raises(Unsupported, match="hostPID"):
        request_of(spoiled)


def test_the_pod_of_mpi_is_a_job_of_three_nodes() -> None:
    request = request_of(example("mpi.yaml"))
    assert request.pod is not None
    assert (request.pod.mpi, request.resources.nodes, request.resources.tasks_per_node) == ("pmix", 3, 1)


def test_the_pod_of_a_gpu_asks_slurm_for_one() -> None:
    request = request_of(example("gpu.yaml"))
    assert request.pod is not None
    assert (request.pod.gpus, request.resources.gpus_per_node) == ("nvidia", "1")


@pytest.mark.parametrize("step", ["prepare", "simulate", "collect"])
def test_the_steps_of_the_workflow_share_one_folder(step: str) -> None:
    program = request_of(example(f"workflow/{step}.yaml")).pod
    assert program is not None
    volume = next(volume for volume in program.volumes if volume.name == "results")
    assert volume.host_path is not None
    assert volume.host_path.path == CLAIM


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_in_the_page_of_pods(name: str) -> None:
    assert f"(../../{name})" in (ROOT / "docs/users/pods.md").read_text()
