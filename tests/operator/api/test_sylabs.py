"""Manifests of Sylabs' operators, as they were written, and what they mean here."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from redbox_clusters.names import OLD_SLURM_JOBS, OLDEST_SLURM_JOBS, WLM_JOBS
from redbox_kube.api.kinds import Kind
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import JobPhase
from redbox_operator.api.sylabs import OLD_WORDS, translated
from redbox_operator.companion_pods.builder import CompanionProgram, companion_pod
from tests.operator.factories import slurm_cluster

OLD_SCRIPT = "#!/bin/sh\n#SBATCH --nodes=1\n##SBATCH --exclusive\nsrun hostname\n"


def old(spec: dict[str, Any], resource: Kind = OLD_SLURM_JOBS) -> SlurmJob:
    metadata = {"name": "cow", "namespace": "alice", "uid": "u-1"}
    return translated(resource, {"metadata": metadata, "spec": spec})


def test_a_script_is_left_to_slurm_as_it_was_written() -> None:
    assert old({"batch": OLD_SCRIPT}).spec.batch == OLD_SCRIPT


def test_the_older_group_means_the_same() -> None:
    older = old({"batch": OLD_SCRIPT, "ssh": {"user": "root"}, "resources": {"cpu": 2}}, OLDEST_SLURM_JOBS)
    assert older.spec == old({"batch": OLD_SCRIPT}).spec


def test_an_integer_in_the_node_selector_is_a_label_s_value() -> None:
    job = old({"batch": OLD_SCRIPT, "nodeSelector": {"wlm.sylabs.io/cuda": 10}})
    assert job.spec.node_selector == {"wlm.sylabs.io/cuda": "10"}


def test_the_partition_of_the_node_selector_is_the_job_s() -> None:
    job = old({"batch": OLD_SCRIPT, "nodeSelector": {"wlm.sylabs.io/partition": "GPU_big", "disk": "ssd"}})
    assert job.spec.partition == "GPU_big"
    assert job.spec.node_selector == {"disk": "ssd"}


def test_results_go_into_a_folder_of_the_job_s_own() -> None:
    mount = {"name": "data", "nfs": {"server": "10.0.0.1", "path": "/results"}}
    results = old({"batch": OLD_SCRIPT, "results": {"from": "cow.out", "mount": mount}}).spec.results
    assert results is not None
    assert (results.sources, results.folder, results.when) == (["cow.out"], "cow-job", "Succeeded")
    assert results.volume.nfs is not None
    assert results.volume.nfs.path == "/results"


def test_a_container_keeps_its_switches() -> None:
    options = {"cleanEnv": True, "fakeRoot": True, "hostName": "cow", "binds": ["/data:/data:ro"]}
    container = old({"image": "cow.sif", "options": options}, WLM_JOBS).spec.container
    assert container is not None
    assert container.options.clean_env
    assert not container.options.contain
    assert container.options.host_name == "cow"
    assert container.options.binds == ["/data:/data:ro"]


def test_megabytes_and_seconds_become_what_sbatch_takes() -> None:
    resources = {"nodes": 2, "cpuPerNode": 4, "memPerNode": 512, "wallTime": 61}
    spec = old({"image": "cow.sif", "resources": resources}, WLM_JOBS).spec
    asked = spec.resources.model_dump(exclude_none=True)
    assert asked == {"nodes": 2, "tasks_per_node": 1, "cpus_per_task": 4, "mem_per_node": "512M", "time": "2"}


def test_what_is_zero_was_not_said() -> None:
    spec = old({"image": "cow.sif", "resources": {"nodes": 0, "wallTime": 0}}, WLM_JOBS).spec
    assert spec.resources.model_dump(exclude_none=True) == {}


@pytest.mark.parametrize("image", ["-cow.sif", "", "a\nb"])
def test_an_image_that_is_none_is_refused(image: str) -> None:
    with pytest.raises(ValidationError, match="image"):
        old({"image": image}, WLM_JOBS)


def test_every_phase_has_one_of_the_four_old_words() -> None:
    assert set(OLD_WORDS) == set(JobPhase)
    assert set(OLD_WORDS.values()) == {"Pending", "Running", "Succeeded", "Failed"}


def test_the_examples_are_understood() -> None:
    kinds = {"SlurmJob": OLD_SLURM_JOBS, "WlmJob": WLM_JOBS}
    files = sorted((Path(__file__).parents[3] / "examples" / "sylabs").glob("*.yaml"))
    assert len(files) == 3
    for file in files:
        raw = yaml.safe_load(file.read_text())
        raw["metadata"] |= {"namespace": "alice", "uid": "u-1"}
        job = translated(kinds[raw["kind"]], raw)
        assert (job.spec.batch or job.spec.container) is not None


def test_an_allowed_host_path_is_mounted_into_the_companion() -> None:
    mount = {"name": "data", "hostPath": {"path": "/srv/results", "type": "Directory"}}
    job = old({"batch": "#!/bin/sh\n", "results": {"from": "a", "mount": mount}})
    volumes = companion_pod(job, slurm_cluster(), 1, CompanionProgram("image"))["spec"]["volumes"]
    made = {"name": "results", "hostPath": {"path": "/srv/results", "type": "DirectoryOrCreate"}}
    assert made in volumes
