"""The log of one start of a pod's container, as the pod's report moves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from redbox.jobs.record.record import JobRecord
from redbox.logs.container_logs import LoggedStart, container_start, output_state
from redbox.logs.interfaces import NoSuchContainer
from redbox_api.models import Phase
from tests.redbox.logs.test_job_logs import record

AT = "2026-01-01T00:00:00Z"
RUNNING = {"running": {"startedAt": AT}}
ENDED = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": AT}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}


def pod(state: dict[str, Any], restarts: int = 0, phase: Phase = Phase.RUNNING, **more: Any) -> JobRecord:
    containers = [{"name": "main", "state": state, "restartCount": restarts, **more}]
    text = json.dumps({"at": AT, "containers": containers})
    shown = replace(record(phase, "RUNNING", 1), is_pod=True, pod_report=text)
    return replace(shown, status=replace(shown.status, working_directory="/home/alice/p"))


@pytest.mark.parametrize(
    ("shown", "run", "writing", "final"),
    [
        (pod(CREATING), 0, False, False),
        (pod(RUNNING), 1, True, False),
        (pod(ENDED), 1, False, True),
        (pod(BACK_OFF, lastState=ENDED), 1, False, True),
        (pod(RUNNING, 1, lastState=ENDED), 1, False, True),  # the next start has begun
        (pod(RUNNING, phase=Phase.FAILED), 1, False, True),  # its runner was killed
        (pod(CREATING, phase=Phase.CANCELLED), 1, False, True),
    ],
)
def test_a_start_is_one_log(shown: JobRecord, run: int, *, writing: bool, final: bool) -> None:
    state = output_state(shown, LoggedStart("main", 0))
    assert (state.path, state.run) == ("/home/alice/p/main-0.log", run)
    assert (state.writing, state.final) == (writing, final)


def test_the_newest_start_is_the_default_and_earlier_ones_stay() -> None:
    shown = pod(RUNNING, 2, lastState=ENDED)
    assert container_start(shown, "main", None).file_name == "main-2.log"
    assert container_start(shown, "main", 0).file_name == "main-0.log"


@pytest.mark.parametrize(
    ("shown", "name", "restart"),
    [
        (pod(RUNNING, 1), "main", 2),
        (pod(RUNNING), "other", None),
        (replace(pod(RUNNING), pod_report=""), "main", None),
        (replace(pod(RUNNING), pod_report="{"), "main", None),
        (replace(pod(RUNNING), is_pod=False), "main", None),
    ],
)
def test_what_is_not_reported_has_no_log(shown: JobRecord, name: str, restart: int | None) -> None:
    with pytest.raises(NoSuchContainer):
        container_start(shown, name, restart)


def test_a_refusal_names_the_containers_that_there_are() -> None:
    named = replace(pod(RUNNING), pod_report=json.dumps({"at": AT, "containers": [{"name": "main"}]}))
    with pytest.raises(NoSuchContainer, match=r"Its containers are main\.$"):
        container_start(named, "other", None)
    with pytest.raises(NoSuchContainer, match=r"It has not reported any yet\.$"):
        container_start(replace(named, pod_report=""), "main", None)


def test_a_refusal_shows_no_name_that_is_not_a_name() -> None:
    names = [{"name": "main"}, {"name": "\x1b[31mred"}, {"name": "two\nlines"}, {"name": "side-car"}]
    stranger = replace(pod(RUNNING), pod_report=json.dumps({"at": AT, "containers": names}))
    with pytest.raises(NoSuchContainer, match=r"Its containers are main, side-car\.$"):
        container_start(stranger, "other", None)


def test_a_container_that_a_report_no_longer_names_writes_until_its_job_ends() -> None:
    start = LoggedStart("gone", 0)
    assert not output_state(pod(RUNNING), start).final
    assert output_state(pod(RUNNING, phase=Phase.SUCCEEDED), start).final
