"""What the reconciler does about one SlurmJob that is deleted or over, and while red-box is away."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redbox_api.errors import NotAllowed
from redbox_api.models import Phase, Problem
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_operator.api.constants import ANNOTATION_ABANDON, FINALIZER
from redbox_operator.slurmcluster.job_feed import RedboxUnavailable
from tests.operator.factories import slurm_cluster
from tests.operator.harness import CLUSTER, DELETED, Stand


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


# ---------------------------------------------------------------------------------------------- the end


async def test_a_deleted_slurmjob_stays_until_slurm_says_that_its_job_is_final(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(**DELETED)
    assert stand.link.done == ["cancel farm/default all"]
    assert stand.finalizers == [FINALIZER]
    assert "waits for Slurm to end its job: 7" in stand.status["message"]
    await stand.at_redbox(Phase.CANCELLED)
    assert stand.finalizers == []


async def test_a_slurmjob_that_never_had_a_job_goes_at_once(stand: Stand) -> None:
    await stand.apply()
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_of_a_large_one_the_finalizers_of_others_stay(stand: Stand) -> None:
    """Only whether ours is there is in memory."""
    others = tuple(f"example.org/finalizer-{number}" for number in range(1000))
    await stand.apply(finalizers=others)
    assert stand.finalizers == [*others, FINALIZER]
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(**DELETED)
    assert stand.finalizers == [*others, FINALIZER]
    await stand.at_redbox(Phase.CANCELLED)
    assert stand.finalizers == [*others]


async def test_one_that_red_box_does_not_know_any_more_waits_and_says_what_brings_it_back(
    stand: Stand,
) -> None:
    """Its journal was lost, or another red-box answers: the job in Slurm may run on."""
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.rows.clear()
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "has no record of it, though it was submitted as Slurm's job 7" in stand.status["message"]
    assert "redbox recover" in stand.status["message"]
    await stand.at_redbox(Phase.CANCELLED)
    assert stand.finalizers == []


async def test_one_whose_cancel_is_refused_waits_and_says_why(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.refusal = NotAllowed(
        Problem(type="t", title="The caller may not do this", status=403, detail="no")
    )
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "answers: no" in stand.status["message"]


async def test_one_cancel_too_many_is_sent_again_after_red_boxs_pause(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So ten thousand deletions are delayed, and none is lost."""
    pauses = list[float]()
    monkeypatch.setattr(stand.reconciler.queue, "add_later", lambda _, pause_s: pauses.append(pause_s))
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.put(metadata=DELETED)
    stand.link.refusal = RedboxUnavailable("too many", until_return=False, after_s=45.0)
    with pytest.raises(RedboxUnavailable):
        await stand.look()
    await stand.reconciler._handle(stand.ref)
    stand.link.refusal = None
    assert 46 <= pauses[-1] <= 50
    assert stand.finalizers == [FINALIZER]
    await stand.look()
    assert stand.link.done == ["cancel farm/default all"]


async def test_with_red_box_away_it_waits_and_says_for_what(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.away = True
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "is away" in stand.status["message"]
    assert stand.event_reasons()[-1] == "Cancelling"
    stand.link.away = False
    await stand.at_redbox(Phase.CANCELLED)
    assert stand.finalizers == []


async def test_one_that_has_ended_does_not_wait_for_red_box(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    stand.link.away = True
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_an_abandoned_slurmjob_waits_for_nothing_and_that_is_told(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.away = True
    await stand.change(annotations={ANNOTATION_ABANDON: "true"}, **DELETED)
    assert stand.finalizers == []
    assert stand.event_reasons()[-1] == "Abandoned"


async def test_a_slurmcluster_can_let_all_its_jobs_be_abandoned(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.away = True
    spec = CLUSTER.spec.model_copy(update={"abandon_jobs": True})
    stand.link.cluster = CLUSTER.model_copy(update={"spec": spec})
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_a_deleted_slurmjob_waits_for_a_slurmcluster_that_is_gone_and_says_so(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.links.clear()
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "SlurmCluster hpc1 is gone" in stand.status["message"]


async def test_a_slurmcluster_that_cannot_be_used_is_not_said_to_be_gone(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.links.clear()
    stand.troubles["hpc1"] = "spec.caBundle is not a PEM certificate: none"
    await stand.look()
    assert (stand.status["phase"], stand.conditions["Synced"]) == (
        "Running",
        ("False", "ClusterMisconfigured"),
    )
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert (
        "SlurmCluster hpc1 cannot be used (spec.caBundle is not a PEM certificate" in stand.status["message"]
    )


async def test_a_slurmjob_of_a_slurmcluster_that_never_was_can_be_deleted(stand: Stand) -> None:
    stand.links.clear()
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "NoSuchCluster")
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_with_a_deletion_nothing_is_made(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(**DELETED)
    del stand.api.objects[ResourcePath(kinds.POD, "cow-job", "farm")]
    await stand.look()
    assert stand.pod_names == []


async def test_a_slurmjob_whose_time_is_over_deletes_itself_once_its_log_was_read(stand: Stand) -> None:
    await stand.apply(ttlSecondsAfterFinished=60)
    await stand.at_redbox(Phase.SUCCEEDED)
    stand.now += timedelta(seconds=61)
    await stand.look()
    assert stand.where in stand.api.objects
    await stand.pod_ends('{"final": true, "logs": "complete"}')
    assert "deletionTimestamp" in stand.api.objects[stand.where]["metadata"]
    await stand.look()
    assert stand.where not in stand.api.objects


async def test_one_whose_time_is_over_waits_for_results_that_are_copied_after_its_companion_is_done(
    stand: Stand,
) -> None:
    stand.link.cluster = slurm_cluster(delivery="Virtual")
    results = {"from": ["out/*"], "volume": {"persistentVolumeClaim": {"claimName": "data"}}}
    await stand.apply(ttlSecondsAfterFinished=0, results=results)
    await stand.at_redbox(Phase.SUCCEEDED)
    await stand.look()
    assert stand.status["companion"]["done"]
    assert "deletionTimestamp" not in stand.api.objects[stand.where]["metadata"]
    collected = '{"final": true, "results": {"outcome": "Collected", "files": 1, "bytes": 3}}'
    await stand.pod_ends(collected, "cow-helper")
    assert stand.conditions["ResultsCollected"] == ("True", "ResultsCollected")
    assert "deletionTimestamp" in stand.api.objects[stand.where]["metadata"]


async def test_one_whose_time_is_not_over_is_looked_at_again_in_time(stand: Stand) -> None:
    await stand.apply(ttlSecondsAfterFinished=60)
    await stand.at_redbox(Phase.SUCCEEDED)
    assert await stand.look() == 60.0


# ---------------------------------------------------------------------------------------------- red-box away


async def test_nothing_is_written_of_a_job_before_red_box_has_told_what_it_knows(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.start()
    stand.link.rows.clear()
    stand.link.synced = False
    writes = stand.api.writes
    await stand.look()
    assert stand.api.writes == writes
    assert stand.status["phase"] == "Running"
