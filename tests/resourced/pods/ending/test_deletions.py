"""A pod whose job nothing can cancel any more goes with a sentence that names the job; no other pod does."""

from __future__ import annotations

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from redbox_api.errors import Busy
from redbox_resourced.pods.ending.deletions import LATE_S, RUNNERS_END_S
from tests.resourced.pods.factories import RUNS, died, pod_job, report
from tests.resourced.pods.pod_life_harness import POD, PodLife, pod_life, problem, until

PLACE = ("alice", "train")
NAMED = "Slurm job 7 of alice was not cancelled"


async def running(life: PodLife) -> None:
    life.create(restartPolicy="Never")
    await until(lambda: "pod-uid" in life.redbox.jobs)
    life.redbox.change(pod_job(pod=report(main=RUNS)))
    await until(lambda: life.pods.informer.pods[PLACE].is_submitted and life.status["phase"] == "Running")


async def test_without_its_slurmcluster_a_deleted_pod_goes_and_its_job_is_named() -> None:
    async with pod_life() as life:
        await running(life)
        life.followed.clear()
        with capture_logs() as logged:
            life.delete()
            await until(lambda: not life.exists and PLACE not in life.pods.informer.pods)
        (event,) = life.api.events
        assert (event["reason"], NAMED in event["message"]) == ("JobAbandoned", True)
        (line,) = [line for line in logged if "abandoned" in line]
        assert NAMED in line["abandoned"]
        assert "DELETE" not in life.redbox.asked


async def test_a_pod_that_is_gone_with_its_slurmcluster_is_named_in_the_log() -> None:
    async with pod_life() as life:
        await running(life)
        life.followed.clear()
        with capture_logs() as logged:
            life.api.remove(POD)
            await until(lambda: PLACE not in life.pods.informer.pods)
        assert [NAMED in line["abandoned"] for line in logged if "abandoned" in line] == [True]


async def test_before_the_slurmclusters_are_listed_no_pod_goes() -> None:
    async with pod_life() as life:
        await running(life)
        known = dict(life.followed)
        life.followed.clear()
        life.is_cluster_listed = False
        life.delete()
        await life.settled()
        assert life.exists
        life.followed.update(known)
        life.pods.enqueue(PLACE)
        await until(lambda: "DELETE" in life.redbox.asked)


async def test_with_abandon_jobs_a_deleted_pod_does_not_wait_for_its_job() -> None:
    async with pod_life() as life:
        await running(life)
        life.change_cluster(abandonJobs=True)
        life.delete()
        await until(lambda: not life.exists)
        assert "DELETE" not in life.redbox.asked
        assert [NAMED in event["message"] for event in life.api.events] == [True]


async def test_while_its_slurmcluster_is_being_deleted_no_pod_is_submitted() -> None:
    async with pod_life() as life:
        life.change_cluster(metadata={"deletionTimestamp": "2026-11-21T14:00:00Z"})
        life.create()
        await until(lambda: life.waiting_reason == "ClusterBeingDeleted")
        assert life.redbox.asked == []


async def test_a_pod_that_is_late_to_go_says_what_it_waits_for() -> None:
    async with pod_life() as life:
        await running(life)
        life.delete()
        await until(lambda: "DELETE" in life.redbox.asked)
        life.now += timedelta(seconds=30 + RUNNERS_END_S)
        life.pods.enqueue(("alice", "train"))
        await until(lambda: "DELETE force" in life.redbox.asked)
        await life.settled()
        assert life.api.events == []  # it has been cancelled by force just now
        life.now += timedelta(seconds=LATE_S)
        life.pods.enqueue(("alice", "train"))
        await until(lambda: life.api.events)
        [event] = life.api.events
        assert event["reason"] == "JobNotEnded"
        assert "Slurm job 7 of alice has not ended in Slurm" in event["message"]


@pytest.mark.parametrize("how", ["away", "refuses"])
async def test_a_pod_whose_job_cannot_be_cancelled_says_so(how: str) -> None:
    async with pod_life() as life:
        await running(life)
        if how == "away":
            life.pods.job_feeds["hpc1"].fault = "no route to host"
        else:
            life.redbox.failing = Busy(problem(503), retry_after=60)
        life.now += timedelta(minutes=10)
        life.delete()
        await until(lambda: life.api.events)
        [event] = life.api.events
        assert event["reason"] == "JobNotEnded"
        assert "kubectl delete --force" in event["message"]
        assert life.exists


async def test_a_deleted_pod_waits_for_a_red_box_that_has_lost_its_record_and_then_names_the_job() -> None:
    """A red-box without its journal answers 404 of a job that runs."""
    async with pod_life() as life:
        await running(life)
        life.redbox.jobs.clear()
        life.delete()
        await until(lambda: "DELETE as resourced" in life.redbox.asked)
        await life.settled()
        assert life.exists
        life.now += timedelta(hours=1)
        life.pods.enqueue(PLACE)
        await until(lambda: not life.exists)
        assert any(
            event["reason"] == "JobAbandoned" and "no record of Slurm job 7" in event["message"]
            for event in life.api.events
        )


async def test_a_report_that_all_has_ended_does_not_end_the_pod_of_a_job_that_runs() -> None:
    async with pod_life() as life:
        await running(life)
        life.redbox.change(pod_job(pod=report(main=died(0), done=True)))
        await until(lambda: "terminated" in life.status["containerStatuses"][0]["state"])
        assert life.status["phase"] == "Running"
        life.delete()
        await until(lambda: "DELETE" in life.redbox.asked)
        assert life.exists
