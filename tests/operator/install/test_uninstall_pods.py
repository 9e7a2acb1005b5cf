"""What an uninstall does with pods that run as jobs: it names their jobs, or ends them."""

from __future__ import annotations

import pytest

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_operator.install.uninstall import JobsPolicy, NotUninstalled, Uninstall
from tests.clusters.virtual_pods import has_node, has_pod
from tests.kube.fakes import FakeApiServer

TRAIN = ResourcePath(kinds.POD, "train", "farm")
NAMED = "left in Slurm: farm/train: Slurm job 7 of alice"


@pytest.fixture
def api() -> FakeApiServer:
    api = FakeApiServer()
    has_node(api, "hpc1.debug", "hpc1")
    has_pod(api, "train")
    has_pod(api, "waits", submitted="False")
    has_pod(api, "over", phase="Succeeded")
    return api


async def uninstalled(api: FakeApiServer, jobs: JobsPolicy, *watched: str) -> list[str]:
    report: list[str] = []
    await Uninstall(api.client, "redbox-system", watched, jobs, 0.0, report.append).run()
    return report


async def test_with_keep_the_jobs_of_pods_are_printed(api: FakeApiServer) -> None:
    report = await uninstalled(api, JobsPolicy.KEEP)
    assert [line for line in report if line.startswith("left")] == [NAMED]
    assert TRAIN in api.objects


async def test_with_cancel_pods_with_a_job_are_deleted_and_the_others_stay(api: FakeApiServer) -> None:
    report = await uninstalled(api, JobsPolicy.CANCEL)
    assert "cancelling the jobs of 0 SlurmJobs and 1 pods" in report
    assert NAMED not in report
    assert api.names("Pod") == ["over", "waits"]


async def test_with_cancel_it_waits_for_pods_and_names_those_that_stay(
    api: FakeApiServer,
) -> None:
    pod = api.objects[TRAIN]
    api.put(TRAIN, {**pod, "metadata": {**pod["metadata"], "finalizers": ["somebody/s"]}})
    with pytest.raises(NotUninstalled, match=r"1 jobs are not cancelled.*farm/train: Slurm job 7 of alice"):
        await uninstalled(api, JobsPolicy.CANCEL)
    assert api.names("Node") == ["hpc1.debug"]  # nothing is removed


async def test_a_pod_that_cannot_be_deleted_is_named(api: FakeApiServer) -> None:
    api.fail(ApiRefused(403, "no right"), verb="delete", name="train")
    with pytest.raises(NotUninstalled, match="farm/train: Slurm job 7 of alice: no right"):
        await uninstalled(api, JobsPolicy.CANCEL)


async def test_a_pod_that_its_controller_made_again_is_named(api: FakeApiServer) -> None:
    api.before_next_write = lambda: has_pod(api, "train-again")
    report = await uninstalled(api, JobsPolicy.CANCEL)
    assert "left in Slurm: farm/train-again: Slurm job 7 of alice" in report


async def test_a_release_that_is_limited_to_namespaces_leaves_pods_alone(api: FakeApiServer) -> None:
    report = await uninstalled(api, JobsPolicy.CANCEL, "farm")
    assert NAMED not in report
    assert TRAIN in api.objects
