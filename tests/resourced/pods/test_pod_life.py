"""A pod's life on a virtual node: submitted once, shown as it is, and gone only when its job is."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox_api.errors import Busy
from redbox_api.models import Amounts, Partition, PartitionLimits, Phase
from redbox_clusters.slurm_cluster import PodsSpec
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_resourced.pods import pod_request
from redbox_resourced.pods.ending.deletions import RUNNERS_END_S
from redbox_resourced.pods.job_feed import BACKOFF
from redbox_resourced.pods.pod_view import BoundPod
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.pod import TargetPartition, check_supported
from tests.resourced.pods.factories import RUNS, WAITS, died, manifest, pod_job, report
from tests.resourced.pods.pod_life_harness import AWAY, POD, PodLife, pod_life, problem, until

SECRET = {"volumes": [{"name": "v", "secret": {"secretName": "login"}}]}
NEVER = {"restartPolicy": "Never"}


async def submitted(life: PodLife) -> None:
    life.create(**NEVER)
    await until(lambda: "pod-uid" in life.redbox.jobs and life.waiting_reason == "ContainerCreating")


async def running(life: PodLife) -> None:
    await submitted(life)
    life.redbox.change(pod_job(pod=report(main=RUNS)))
    await until(lambda: life.status.get("phase") == "Running")


async def test_a_pod_is_submitted_once_and_followed_to_its_end() -> None:
    async with pod_life() as life:
        await running(life)
        life.redbox.change(pod_job(Phase.FAILED, report(main=died(3), done=True), state="FAILED"))
        await until(lambda: life.status["phase"] == "Failed")
        ended = life.status["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == 3
        assert life.redbox.asked.count("PUT") == 1
        (pod, _, partition), *others = life.translated
        assert (pod["metadata"]["uid"], partition, others) == ("pod-uid", "Debug", [])


async def test_events_are_published_once_and_not_kept() -> None:
    async with pod_life() as life:
        await submitted(life)
        event = {
            "number": 1,
            "reason": "Pulled",
            "message": "it is here",
            "at": datetime.now(UTC).isoformat(),
        }
        life.redbox.change(pod_job(pod=report(main=RUNS, events=[event])))
        await until(lambda: life.api.events and not life.pods.queue.unfinished)
        assert [found["message"] for found in life.api.events] == ["it is here"]
        assert [row.pod.events for row in life.rows if row.pod] == [[]]


async def test_nothing_is_kept_of_an_account_that_calls_red_box_no_more() -> None:
    """A tenant makes as many accounts in a namespace as they like."""
    async with pod_life() as life:
        await submitted(life)
        await until(lambda: not life.pods.queue.unfinished)
        assert len(life.pods._callers) == 0


async def test_the_token_is_of_the_pods_own_account() -> None:
    async with pod_life() as life:
        life.create(serviceAccountName="trainer")
        await until(lambda: "pod-uid" in life.redbox.jobs)
        accounts = {where.name for verb, where in life.api.requests if verb == "token"}
        assert accounts == {"trainer"}


async def test_a_pod_whose_check_takes_long_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    other_is_submitted, check = threading.Event(), check_supported
    waits: list[bool] = []

    def check_slowly(pod: dict[str, Any], settings: PodsSpec, partition: TargetPartition) -> None:
        if pod["metadata"]["name"] == "long":
            waits.append(other_is_submitted.wait(60))
        check(pod, settings, partition)

    monkeypatch.setattr(pod_request, "check_supported", check_slowly)
    async with pod_life() as life:
        for name in ("long", "short"):
            metadata = {"namespace": "alice", "name": name, "uid": name}
            life.api.put(ResourcePath(kinds.POD, name, "alice"), manifest(metadata=metadata))
        await until(lambda: "short" in life.redbox.jobs)
        other_is_submitted.set()
        await until(lambda: "long" in life.redbox.jobs)
    assert waits == [True]


async def test_a_secret_that_appears_later_works() -> None:
    async with pod_life() as life:
        life.create(**SECRET)
        await until(lambda: life.waiting_reason and life.api.events)
        assert life.api.events[0]["reason"] == "FailedMount"
        life.api.put(ResourcePath(kinds.SECRET, "login", "alice"), {"data": {}})
        life.pods.enqueue(("alice", "train"))  # sooner than its back-off
        await until(lambda: "pod-uid" in life.redbox.jobs)
        assert set(life.translated[0][1].secrets) == {"login"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"runtimeClassName": "gvisor"}, "spec.runtimeClassName"),
        ({"containers": [{"name": "main", "resources": {"limits": {"cpu": "x"}}}]}, "resources"),
    ],
)
async def test_a_pod_that_is_refused_by_its_own_fields_reads_no_secret(
    spec: dict[str, Any], words: str
) -> None:
    async with pod_life() as life:
        life.api.put(ResourcePath(kinds.SECRET, "login", "alice"), {"data": {}})
        life.create(**SECRET, **spec)
        await until(lambda: life.status.get("phase") == "Failed")
        assert words in life.status["message"]
        assert "get Secret" not in life.api.asked


async def test_a_deadline_beyond_the_partitions_limit_is_refused_with_its_name() -> None:
    async with pod_life() as life:
        amounts = Amounts(nodes=1, cpus=1, mem_mb=1)
        limits = PartitionLimits(max_time_s=60)
        life.partitions["Debug"] = Partition(
            name="Debug", state="UP", total=amounts, free=amounts, limits=limits
        )
        life.create(activeDeadlineSeconds=61)
        await until(lambda: life.status.get("phase") == "Failed")
        assert "partition Debug ends each job after 60 s" in life.status["message"]


async def test_what_no_job_can_be_fails_with_the_sentence_and_is_not_submitted() -> None:
    async with pod_life() as life:
        life.refusal = Unsupported("spec.hostPID is not supported.")
        life.create()
        await until(lambda: life.status["phase"] == "Failed")
        assert (life.status["reason"], life.status["message"]) == (
            "Unsupported",
            "spec.hostPID is not supported.",
        )
        assert "PUT" not in life.redbox.asked


async def test_a_pod_that_red_box_puts_off_says_why() -> None:
    """As where its user's home hangs: each refusal says when to come again."""
    async with pod_life() as life:
        put_off = problem(503).model_copy(update={"retry": True})
        life.redbox.refusing_puts = Busy(put_off, retry_after=600.0)
        life.create(**NEVER)
        await until(lambda: life.waiting_reason == "Busy")
        life.redbox.refusing_puts = None
        life.pods.enqueue(("alice", "train"))
        await until(lambda: life.waiting_reason == "ContainerCreating")


async def test_where_pods_are_not_enabled_none_runs() -> None:
    async with pod_life(pods_enabled=False) as life:
        life.create()
        await until(lambda: life.status["phase"] == "Failed")
        assert (life.status["reason"], life.redbox.asked) == ("NotRunOnVirtualNode", [])


async def test_nothing_is_submitted_before_the_policies_are_in_force() -> None:
    async with pod_life() as life:
        life.pods.why_no_pods = lambda: "the policy redbox-pods is not in force"
        life.create()
        await until(lambda: life.waiting_reason == "PodsNotServed")
        assert life.redbox.asked == []


async def test_a_deleted_pod_shows_its_exit_codes_and_then_goes() -> None:
    async with pod_life() as life:
        await running(life)
        life.delete()
        await until(lambda: "DELETE" in life.redbox.asked)
        assert life.exists
        life.redbox.change(pod_job(Phase.CANCELLED, report(main=died(143), done=True), state="CANCELLED"))
        await until(lambda: not life.exists)
        last = life.written()[-1]
        assert (last["phase"], last["containerStatuses"][0]["state"]["terminated"]["exitCode"]) == (
            "Failed",
            143,
        )
        assert life.redbox.asked.count("DELETE") == 1


async def test_a_pod_that_outlives_the_grace_of_its_deletion_is_ended_by_force() -> None:
    async with pod_life() as life:
        await running(life)
        life.delete()
        await until(lambda: "DELETE" in life.redbox.asked)
        await life.settled()
        assert "DELETE force" not in life.redbox.asked
        life.now += timedelta(seconds=30 + RUNNERS_END_S)
        life.pods.enqueue(("alice", "train"))
        await until(lambda: "DELETE force" in life.redbox.asked)
        life.pods.enqueue(("alice", "train"))
        await life.settled()
        assert life.redbox.asked.count("DELETE force") == 1


async def test_a_pod_that_is_deleted_before_its_submit_is_never_submitted() -> None:
    async with pod_life() as life:
        life.create(**SECRET)
        await until(lambda: life.waiting_reason)
        life.delete()
        await until(lambda: not life.exists)
        assert life.written()[-1]["phase"] == "Failed"  # for controllers that wait for it
        assert (life.redbox.buried, "PUT" in life.redbox.asked) == ({"pod-uid"}, False)


async def test_a_pod_that_is_deleted_while_it_is_submitted_leaves_no_job() -> None:
    async with pod_life() as life:
        life.redbox.puts.clear()
        life.create(**NEVER)
        await until(lambda: "PUT" in life.redbox.asked)
        life.delete()
        life.redbox.puts.set()
        await until(lambda: "DELETE" in life.redbox.asked)
        assert life.exists
        life.redbox.change(pod_job(Phase.CANCELLED, state="CANCELLED"))
        await until(lambda: not life.exists)


async def test_a_pod_that_is_deleted_while_it_pulls_ends() -> None:
    async with pod_life() as life:
        await submitted(life)
        life.redbox.change(pod_job(pod=report(main=WAITS)))
        life.delete()
        await until(lambda: "DELETE" in life.redbox.asked)
        life.redbox.change(pod_job(Phase.CANCELLED, report(main=WAITS, done=True), state="CANCELLED"))
        await until(lambda: not life.exists)
        assert life.written()[-1]["phase"] == "Failed"


async def test_a_pod_that_is_deleted_while_its_job_ends_shows_that_end() -> None:
    async with pod_life() as life:
        await running(life)
        ending = pod_job(pod=report(main=died(137), done=True))
        life.redbox.change(ending.model_copy(update={"cancel_requested": True}))
        await until(lambda: [row for row in life.rows if row.cancel_requested])
        life.delete()
        await life.settled()
        assert life.exists  # Slurm has not said why
        life.redbox.change(pod_job(Phase.FAILED, ending.pod, state="PREEMPTED"))
        await until(lambda: not life.exists)
        assert life.written()[-1]["reason"] == "Preempted"
        assert "DELETE" not in life.redbox.asked


async def test_a_pod_that_has_ended_goes_at_once() -> None:
    async with pod_life() as life:
        await running(life)
        life.redbox.change(pod_job(Phase.SUCCEEDED, report(main=died(0), done=True), state="COMPLETED"))
        await until(lambda: life.status["phase"] == "Succeeded")
        life.delete()
        await until(lambda: not life.exists)
        assert "DELETE" not in life.redbox.asked


async def test_a_pod_without_a_token_is_cancelled_by_resourced_itself() -> None:
    async with pod_life() as life:
        await running(life)
        life.api.fail(ApiRefused(404, "serviceaccounts default not found"), verb="token")
        life.pods._submitter._tokens.clear()
        life.delete()
        await until(lambda: "DELETE as resourced" in life.redbox.asked)
        owner = life.redbox.owners[-1]
        assert owner is not None
        assert (owner.namespace, owner.account) == ("alice", "default")


async def test_a_pod_whose_account_was_made_again_is_cancelled_by_resourced_itself() -> None:
    """Red-box knows accounts by their uids: the job is not the new one's."""
    async with pod_life() as life:
        await running(life)
        life.redbox.of_an_earlier_account.add("pod-uid")
        life.delete()
        await until(lambda: life.redbox.asked[-2:] == ["DELETE", "DELETE as resourced"])
        assert life.exists
        life.redbox.change(pod_job(Phase.CANCELLED, report(main=died(143), done=True), state="CANCELLED"))
        await until(lambda: not life.exists)
        assert life.written()[-1]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


async def test_a_deleted_pod_waits_for_a_red_box_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BACKOFF, "_longest_s", 0.01)
    async with pod_life() as life:
        await running(life)
        life.redbox.failing = AWAY
        life.delete()
        await until(lambda: "DELETE" in life.redbox.asked)
        assert POD in life.api.objects
        life.redbox.failing = None
        life.pods.enqueue(("alice", "train"))
        await until(lambda: life.redbox.jobs["pod-uid"].cancel_requested)


async def looked_at(life: PodLife, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the pod is looked at within many turns of the event loop, once it was looked at anew."""
    looks = 0
    look = life.pods._reconcile_pod

    async def counted(pod: BoundPod) -> float | None:
        nonlocal looks
        looks += 1
        return await look(pod)

    monkeypatch.setattr(life.pods, "_reconcile_pod", counted)
    life.pods.enqueue(("alice", "train"))
    for _ in range(1000):
        await asyncio.sleep(0)
    return looks


async def test_an_overdue_pod_is_not_looked_at_without_a_pause_while_red_box_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pod_life() as life:
        await running(life)
        life.pods.job_feeds["hpc1"].fault = "red-box is away"
        life.now += timedelta(minutes=10)
        life.delete()
        await life.settled()
        assert await looked_at(life, monkeypatch) == 1


async def test_a_status_that_was_held_back_is_not_tried_without_a_pause_while_red_box_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    async with pod_life() as life:
        await submitted(life)
        monkeypatch.setattr(life.pods._statuses, "_now", lambda: now)
        life.redbox.change(pod_job(Phase.PENDING, reason="Resources"))
        await until(lambda: life.pods._statuses._due)
        life.pods.job_feeds["hpc1"].fault = "red-box is away"
        now = 60.0
        assert await looked_at(life, monkeypatch) <= 2
        life.pods.job_feeds["hpc1"].connected()
        life.pods.job_feeds["hpc1"].fault = ""
        await until(lambda: "Resources" in str(life.status))
