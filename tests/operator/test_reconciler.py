"""What the reconciler does about one SlurmJob, against an API server and a red-box that only remember."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from redbox_api.errors import NoSuchJob
from redbox_api.models import Job, OwnerRef, Phase, Problem
from redbox_kube.objects import ApiRefused, Objects, Where
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator.jobs_at_redbox import RedboxWatch
from redbox_operator.kinds import SlurmJob
from redbox_operator.known_names import FINALIZER
from redbox_operator.reconciler import Reconciler
from tests.operator.test_building import CLUSTER, IMAGE, slurm_job

PLACE = ("farm", "cow")
NO_SUCH_JOB = Problem(type="t", title="There is no such thing", status=404, detail="no such job")


class Remembering:
    """An API server that takes everything and remembers it."""

    def __init__(self) -> None:
        self.created: list[tuple[str, Any]] = []
        self.statuses: list[Any] = []
        self.finalizers: list[list[str]] = []
        self.existing: dict[str, Any] = {}
        self.refusal: ApiRefused | None = None

    async def create(self, where: Where, body: Any) -> Any:
        if self.refusal:
            raise self.refusal
        self.created.append((where.kind, body))
        return {"metadata": {"uid": f"{where.kind}-uid"}} if where.kind not in self.existing else None

    async def get(self, where: Where) -> Any:
        return self.existing.get(where.kind)

    async def apply_status(self, where: Where, status: Any) -> Any:
        del where
        self.statuses.append(status)

    async def set_finalizers(self, where: Where, finalizers: list[str], *, resource_version: str) -> Any:
        del where, resource_version
        self.finalizers.append(finalizers)


class Watch:
    """A red-box with at most one job."""

    def __init__(self, job: Job | None = None) -> None:
        self.cluster: SlurmCluster = CLUSTER
        self.job = job
        self.cancelled: list[str] = []

    def row(self, key: str, attempt: int, namespace: str, account: str) -> Job | None:
        del key, attempt
        owner = self.job.owner if self.job else None
        return self.job if owner and (owner.namespace, owner.account) == (namespace, account) else None

    async def cancel(self, key: str, owner: OwnerRef) -> list[Job]:
        self.cancelled.append(f"{owner.namespace}/{owner.account}/{key}")
        if self.job is None:
            raise NoSuchJob(NO_SUCH_JOB)
        return [self.job]


def at_redbox(phase: Phase, namespace: str = "farm") -> Job:
    owner = OwnerRef(cluster="c", namespace=namespace, account="default")
    return Job(key="0aa6-11", attempt=1, owner=owner, user="alice", phase=phase, job_id="7")


def seen(job: SlurmJob, **metadata: Any) -> SlurmJob:
    return SlurmJob.model_validate(
        {
            "metadata": {**job.metadata, "resourceVersion": "1", "finalizers": [FINALIZER], **metadata},
            "spec": job.spec.model_dump(by_alias=True, exclude_defaults=True),
        }
    )


@pytest.fixture
def api() -> Remembering:
    return Remembering()


def reconciler(api: Remembering, watches: Mapping[str, Watch]) -> Reconciler:
    return Reconciler(cast("Objects", api), cast("Mapping[str, RedboxWatch]", watches), IMAGE)


async def test_the_finalizer_comes_before_anything_is_made(api: Remembering) -> None:
    one = reconciler(api, {"hpc1": Watch()})
    one.job_seen(seen(slurm_job(), finalizers=[]))
    await one.reconcile(PLACE)
    assert api.finalizers == [[FINALIZER]]
    assert api.created == []


async def test_the_request_is_there_before_the_companion(api: Remembering) -> None:
    one = reconciler(api, {"hpc1": Watch()})
    one.job_seen(seen(slurm_job()))
    await one.reconcile(PLACE)
    assert [kind for kind, _ in api.created] == ["ConfigMap", "Pod"]
    assert api.statuses[-1]["companion"] == {"uid": "Pod-uid"}


async def test_a_pod_of_that_name_that_is_not_ours_is_no_companion(api: Remembering) -> None:
    api.existing = {"Pod": {"metadata": {"uid": "strange", "ownerReferences": []}}}
    one = reconciler(api, {"hpc1": Watch()})
    one.job_seen(seen(slurm_job()))
    await one.reconcile(PLACE)
    assert "companion" not in api.statuses[-1]


async def test_what_red_box_says_becomes_the_status(api: Remembering) -> None:
    one = reconciler(api, {"hpc1": Watch(at_redbox(Phase.RUNNING))})
    one.job_seen(seen(slurm_job()))
    await one.reconcile(PLACE)
    assert (api.statuses[-1]["phase"], api.statuses[-1]["jobID"]) == ("Running", "7")


async def test_a_row_of_another_owner_with_the_same_key_is_not_believed(api: Remembering) -> None:
    one = reconciler(api, {"hpc1": Watch(at_redbox(Phase.SUCCEEDED, namespace="elsewhere"))})
    one.job_seen(seen(slurm_job()))
    await one.reconcile(PLACE)
    assert api.statuses[-1]["phase"] == "Pending"


async def test_a_job_that_has_ended_needs_no_companion_any_more(api: Remembering) -> None:
    one = reconciler(api, {"hpc1": Watch(at_redbox(Phase.SUCCEEDED))})
    one.job_seen(seen(slurm_job()))
    await one.reconcile(PLACE)
    assert api.created == []
    assert api.statuses[-1]["phase"] == "Succeeded"


async def test_a_missing_slurmcluster_is_told_with_its_cure(api: Remembering) -> None:
    one = reconciler(api, {})
    one.job_seen(seen(slurm_job()))
    await one.reconcile(PLACE)
    assert "there is no SlurmCluster hpc1" in api.statuses[-1]["message"]


async def test_a_deleted_slurmjob_stays_until_slurm_says_that_its_job_is_final(api: Remembering) -> None:
    watch = Watch(at_redbox(Phase.RUNNING))
    one = reconciler(api, {"hpc1": watch})
    one.job_seen(seen(slurm_job(), deletionTimestamp="2026-01-01T00:00:00Z"))
    await one.reconcile(PLACE)
    assert watch.cancelled == ["farm/default/0aa6-11"]
    assert api.finalizers == []
    watch.job = at_redbox(Phase.CANCELLED)
    await one.reconcile(PLACE)
    assert api.finalizers == [[]]


async def test_a_slurmjob_that_never_had_a_job_goes_at_once(api: Remembering) -> None:
    one = reconciler(api, {"hpc1": Watch()})
    one.job_seen(seen(slurm_job(), deletionTimestamp="2026-01-01T00:00:00Z"))
    await one.reconcile(PLACE)
    assert api.finalizers == [[]]
    assert api.created == []


async def test_a_deleted_slurmjob_waits_for_a_slurmcluster_that_is_gone_and_says_so(api: Remembering) -> None:
    one = reconciler(api, {})
    submitted = {"status": {"companion": {"uid": "pod-uid"}}}
    deleted = seen(slurm_job(), deletionTimestamp="2026-01-01T00:00:00Z").model_copy(update=submitted)
    one.job_seen(deleted)
    await one.reconcile(PLACE)
    assert api.finalizers == []
    assert "SlurmCluster hpc1 is gone" in api.statuses[-1]["message"]


async def test_a_slurmjob_of_a_slurmcluster_that_never_was_can_be_deleted(api: Remembering) -> None:
    one = reconciler(api, {})
    one.job_seen(seen(slurm_job(), deletionTimestamp="2026-01-01T00:00:00Z"))
    await one.reconcile(PLACE)
    assert api.finalizers == [[]]


async def test_a_refusal_of_the_api_server_is_for_the_queue_to_retry(api: Remembering) -> None:
    api.refusal = ApiRefused(403, "exceeded quota")
    one = reconciler(api, {"hpc1": Watch()})
    one.job_seen(seen(slurm_job()))
    with pytest.raises(ApiRefused, match="exceeded quota"):
        await one.reconcile(PLACE)
