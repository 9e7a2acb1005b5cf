"""What is said of pods in numbers, and how often red-box is asked for them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from redbox_api.errors import Unreachable
from redbox_api.models import JobUsage, UsageList
from redbox_resourced.kubelet import stats, usage
from redbox_resourced.kubelet.usage import PodUsage
from redbox_resourced.pods.pod_view import BoundPod, read_pod
from tests.resourced.pods.factories import running_pod

AT = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
UNKNOWN: dict[str, JobUsage] = {}


def pod(name: str, phase: str = "Running", account: str = "default", namespace: str = "alice") -> BoundPod:
    owner = {
        "controller": True,
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmJob",
        "name": name,
        "uid": f"key-{name}",
    }
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "ownerReferences": [owner]}
    return read_pod(
        {
            "metadata": {**metadata, "creationTimestamp": "2026-11-21T12:59:58Z"},
            "spec": {
                "nodeName": "hpc1.debug",
                "serviceAccountName": account,
                "containers": [{"name": "companion", "image": "i"}],
            },
            "status": {"phase": phase},
        }
    )


def used(name: str, cpu_s: float = 2.0) -> JobUsage:
    return JobUsage(key=f"key-{name}", attempt=1, measured_at=AT, cpu_seconds=cpu_s, memory_bytes=4096)


class Redbox:
    """Reports the usage of the jobs of the calling account."""

    def __init__(self) -> None:
        self.jobs: list[JobUsage] = []
        self.asked: list[str] = []
        self.is_away = False
        self.hangs = ""
        """The namespace whose accounts get no answer."""
        self.spoken_for: list[str] = []
        self.client = object()

    def client_for(self, asking: BoundPod, _: object) -> Any:
        redbox = self
        redbox.spoken_for.append(asking.name)

        class Client:
            async def usage(self) -> UsageList:
                redbox.asked.append(asking.name)
                if asking.namespace == redbox.hangs:
                    await asyncio.Event().wait()
                if redbox.is_away:
                    raise Unreachable("away")
                return UsageList(items=redbox.jobs)

        return Client()

    def of_node(self, _: str) -> object:
        return self


@pytest.fixture
def redbox() -> Redbox:
    return Redbox()


def usage_of(redbox: Redbox, *pods: BoundPod) -> PodUsage:
    return PodUsage(lambda: pods, cast("Any", redbox), cast("Any", redbox))


async def test_one_question_serves_all_pods_of_an_account(redbox: Redbox) -> None:
    redbox.jobs = [used("a"), used("b"), used("not-here")]
    result = await usage_of(redbox, pod("a"), pod("b")).now()
    assert set(result) == {"uid-a", "uid-b"}
    assert redbox.asked == ["a"]


async def test_pods_that_run_are_measured_by_their_own_uid(redbox: Redbox) -> None:
    redbox.jobs = [JobUsage(key="pod-uid", attempt=1, measured_at=AT, cpu_seconds=1, memory_bytes=1)]
    assert set(await usage_of(redbox, running_pod("Running")).now()) == {"pod-uid"}


async def test_each_account_asks_for_itself(redbox: Redbox) -> None:
    await usage_of(redbox, pod("a"), pod("b", account="other")).now()
    assert redbox.asked == ["a", "b"]


async def test_a_namespace_whose_accounts_get_no_answer_leaves_others_theirs(
    redbox: Redbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "ALL_S", 0.1)
    redbox.hangs, redbox.jobs = "alice", [used("theirs")]
    accounts = [pod(f"a{number}", account=f"a{number}") for number in range(2 * usage.AT_ONCE)]
    assert set(await usage_of(redbox, *accounts, pod("theirs", namespace="bob")).now()) == {"uid-theirs"}


async def test_who_asks_again_at_once_gets_the_same_answer(redbox: Redbox) -> None:
    pod_usage = usage_of(redbox, pod("a"))
    for _ in range(200):
        await pod_usage.now()
    assert redbox.asked == ["a"]


async def test_a_client_is_kept_until_its_slurm_cluster_moves(
    redbox: Redbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "FRESH_S", 0)
    pod_usage = usage_of(redbox, pod("a"))
    await pod_usage.now()
    await pod_usage.now()
    assert redbox.spoken_for == ["a"]
    redbox.client = object()
    await pod_usage.now()
    assert redbox.spoken_for == ["a", "a"]


async def test_nobody_is_asked_for_pods_whose_jobs_do_not_run(redbox: Redbox) -> None:
    await usage_of(redbox, pod("a", "Pending"), pod("b", "Succeeded")).now()
    assert redbox.asked == []


async def test_a_red_box_that_is_away_costs_no_answer(
    redbox: Redbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox_resourced.kubelet.usage.FRESH_S", 0.0)
    redbox.jobs = [used("a")]
    pod_usage = usage_of(redbox, pod("a"))
    before = dict(await pod_usage.now())
    redbox.is_away = True
    assert await pod_usage.now() == before != {}


def test_a_pod_is_shown_with_what_its_job_uses() -> None:
    shown = stats.summary([pod("a")], {"uid-a": used("a")})["pods"][0]
    assert shown["podRef"] == {"name": "a", "namespace": "alice", "uid": "uid-a"}
    assert shown["cpu"] == {"time": "2026-11-21T13:00:00Z", "usageCoreNanoSeconds": 2_000_000_000}
    assert shown["memory"]["workingSetBytes"] == 4096
    assert [container["name"] for container in shown["containers"]] == ["companion"]


def test_numbers_that_nobody_measured_are_left_out() -> None:
    assert set(stats.summary([pod("a")], UNKNOWN)["pods"][0]) == {"podRef", "startTime"}
    assert "companion" not in stats.resource_metrics([pod("a")], UNKNOWN)


def test_metrics_carry_the_time_of_the_measure() -> None:
    lines = stats.resource_metrics([pod("a")], {"uid-a": used("a")}).splitlines()
    of = 'container="companion",namespace="alice",pod="a"'
    at = int(AT.timestamp() * 1000)
    assert f"container_cpu_usage_seconds_total{{{of}}} 2.0 {at}" in lines
    assert f"container_memory_working_set_bytes{{{of}}} 4096 {at}" in lines
    assert f'pod_cpu_usage_seconds_total{{namespace="alice",pod="a"}} 2.0 {at}' in lines
    assert lines[-1] == "resource_scrape_error 0"
