"""No runner can have etcd written for it without end, and what is held back is written later."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from redbox_api.pod_report import PodReport
from redbox_kube.runtime.waiting_details import LONGEST_WAIT_S
from redbox_resourced.pods.pod_view import digest_of, without_details
from redbox_resourced.pods.reported.status_writes import BURST, REFILL_S, PodStatusWriter
from tests.kube.fakes import FakeApiServer
from tests.resourced.pods.factories import RUNS, manifest, pod_job, report, running_pod
from tests.resourced.pods.pod_life_harness import POD, PodLife, pod_life, until


class Written:
    """The statuses of one pod, and a clock."""

    def __init__(self) -> None:
        self.at = 0.0
        self.api = FakeApiServer()
        self.api.put(POD, manifest())
        self.pod = running_pod()
        self.writer = PodStatusWriter(self.api.client, "10.0.0.7", now=lambda: self.at)

    async def write(self, phase: str, message: str) -> None:
        await self.writer.write(self.pod, {"phase": phase, "message": message})

    @property
    def messages(self) -> list[Any]:
        return [body["status"]["message"] for *_, body in self.api.applied]


async def test_after_a_burst_one_in_some_seconds_is_written() -> None:
    written = Written()
    for number in range(3 * BURST):
        await written.write("Running", str(number))
    assert len(written.messages) == BURST
    assert written.writer.due_in(written.pod) == REFILL_S
    written.at += REFILL_S
    assert written.writer.due_in(written.pod) == 0
    await written.write("Running", "later")
    await written.write("Running", "too early")
    assert written.messages[BURST:] == ["later"]


async def test_the_last_status_of_a_pod_never_waits() -> None:
    written = Written()
    for number in range(2 * BURST):
        await written.write("Running", str(number))
    await written.write("Failed", "over")
    assert written.messages[-1] == "over"
    assert written.writer.due_in(written.pod) is None


async def test_a_pod_that_is_shown_as_it_is_waits_for_nothing() -> None:
    written = Written()
    assert written.writer.due_in(written.pod) is None
    await written.write("Running", "one")
    assert written.writer.due_in(written.pod) is None


async def test_details_wait_for_the_next_change_of_the_pod() -> None:
    written = Written()
    queued = waiting_status("Queued", "It waits for jobs of higher priority.")
    written.pod = replace(
        written.pod,
        status_digest=digest_of(queued),
        main_digest=digest_of(without_details(queued)),
    )
    await written.writer.write(written.pod, waiting_status("Queued", "It waits for free nodes."))
    assert written.api.applied == []
    assert written.writer.due_in(written.pod) == LONGEST_WAIT_S
    await written.writer.write(written.pod, waiting_status("Suspended", "An administrator suspended it."))
    assert len(written.api.applied) == 1
    await written.writer.write(written.pod, waiting_status("Queued", "It waits for free nodes."))
    written.at += LONGEST_WAIT_S
    assert written.writer.due_in(written.pod) == 0
    await written.writer.write(written.pod, waiting_status("Queued", "It waits for free nodes."))
    assert len(written.api.applied) == 2


def waiting_status(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    host = {"hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}]}
    return {**host, "phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}


def shows(life: PodLife, reported: PodReport) -> bool:
    return [row.pod for row in life.rows] == [reported]


async def test_a_runner_that_reports_without_end_is_shown_as_it_is_in_the_end() -> None:
    async with pod_life() as life:
        at = 0.0  # no time passes
        life.pods._statuses._now = life.pods._statuses._pace.now = lambda: at
        life.create(restartPolicy="Never")
        await until(lambda: "pod-uid" in life.redbox.jobs)
        for number in range(2 * BURST):
            reported = report(main={"state": RUNS, "restartCount": number})
            life.redbox.change(pod_job(pod=reported))
            await until(partial(shows, life, reported))
            await until(lambda: not life.pods.queue.unfinished)
        await until(lambda: life.pods._statuses._due.keys() == {"pod-uid"})
        assert len(life.written()) <= BURST
        at = REFILL_S
        life.pods.enqueue(("alice", "train"))  # sooner than its timer
        await until(lambda: life.status["containerStatuses"][0]["restartCount"] == 2 * BURST - 1)
