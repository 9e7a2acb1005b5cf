"""Each event of a runner is published once, and no runner can flood the API server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from redbox_api.models import Job
from redbox_kube.api.objects import ApiUnreachable
from redbox_resourced.pods.reported.pod_events import BURST, REFILL_S, PodEvents
from tests.kube.fakes import FakeApiServer
from tests.resourced.pods.factories import REPORTED_AT, RUNS, pod_job, report, running_pod


class Clock:
    """Half a minute after the report, until a test moves it."""

    def __init__(self) -> None:
        self.now = REPORTED_AT + timedelta(seconds=30)

    def __call__(self) -> Any:
        return self.now


def told(number: int, reason: str = "Pulled", container: str = "") -> dict[str, Any]:
    words = {"number": number, "reason": reason, "message": f"event {number}", "container": container}
    return {**words, "at": REPORTED_AT.isoformat()}


def job(*numbers: int, **fields: Any) -> Job:
    return pod_job(pod=report(main=RUNS, events=[told(number) for number in numbers]), **fields)


def messages(api: FakeApiServer) -> list[str]:
    return [event["message"] for event in api.events]


async def test_an_event_is_published_once_although_each_report_has_it() -> None:
    api = FakeApiServer()
    events = PodEvents(api.client, Clock())
    await events.publish(running_pod(), job(1, 2))
    await events.publish(running_pod(), job(1, 2, 3))
    assert messages(api) == ["event 1", "event 2", "event 3"]


async def test_a_restart_of_resourced_publishes_nothing_twice() -> None:
    api = FakeApiServer()
    await PodEvents(api.client, Clock()).publish(running_pod(), job(1, 2))
    await PodEvents(api.client, Clock()).publish(running_pod(), job(1, 2))
    assert messages(api) == ["event 1", "event 2"]


async def test_what_the_api_server_may_have_forgotten_is_not_published_again() -> None:
    api, clock = FakeApiServer(), Clock()
    clock.now += timedelta(hours=2)
    await PodEvents(api.client, clock).publish(running_pod(), job(1))
    assert messages(api) == []


async def test_a_reason_that_quotes_much_is_kept_no_longer_than_it_is_shown() -> None:
    api = FakeApiServer()
    events = PodEvents(api.client, Clock())
    for end in ("a", "b"):
        await events.warn(running_pod(), "Unsupported", "x" * 2000 + end)
    assert messages(api) == ["x" * 1024]


async def test_another_run_of_the_job_counts_anew() -> None:
    api = FakeApiServer()
    events = PodEvents(api.client, Clock())
    await events.publish(running_pod(), job(1))
    await events.publish(running_pod(), job(1, run=2))
    assert messages(api) == ["event 1", "event 1"]


async def test_an_event_names_its_pod_and_container_and_has_the_runners_time() -> None:
    api = FakeApiServer()
    pod = running_pod(initContainers=[{"name": "setup", "image": "i"}])
    told_of = [told(1, "Started", "main"), told(2, "Started", "setup")]
    await PodEvents(api.client, Clock()).publish(pod, pod_job(pod=report(main=RUNS, events=told_of)))
    main, setup = api.events
    assert main["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "train",
        "namespace": "alice",
        "uid": "pod-uid",
        "fieldPath": "spec.containers{main}",
    }
    assert setup["involvedObject"]["fieldPath"] == "spec.initContainers{setup}"
    assert main["lastTimestamp"] == "2026-11-21T13:00:20Z"


async def test_a_runner_that_reports_events_without_end_is_slowed_down() -> None:
    api, clock = FakeApiServer(), Clock()
    events = PodEvents(api.client, clock)
    for number in range(1, 10 * BURST):
        await events.publish(running_pod(), job(number))
    assert len(api.events) == BURST
    clock.now += timedelta(seconds=REFILL_S)
    await events.publish(running_pod(), job(10 * BURST, 10 * BURST + 1))
    assert len(api.events) == BURST + 1


async def test_a_pod_that_waits_says_each_reason_once() -> None:
    api = FakeApiServer()
    events = PodEvents(api.client, Clock())
    for message in ("no secret", "no secret", "no config map"):
        await events.warn(running_pod(), "FailedMount", message)
    assert messages(api) == ["no secret", "no config map"]
    assert {event["type"] for event in api.events} == {"Warning"}


async def test_an_event_that_cannot_be_written_fails_nothing_else() -> None:
    api = FakeApiServer()
    api.fail(ApiUnreachable("away"), kind="Event", times=1)
    events = PodEvents(api.client, Clock())
    await events.publish(running_pod(), job(1, 2))
    assert messages(api) == ["event 2"]
