"""When a waiting job would start, as `explain` has it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from kubectl_slurm.errors import NotPermitted, PluginError
from kubectl_slurm.kubectl.program import Kubectl as Program
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.job import SlurmJobView
from kubectl_slurm.slurmjobs.redbox import expected_start
from kubectl_slurm.slurmjobs.redbox.answers import Answer, StartOfJob, read_answer
from kubectl_slurm.slurmjobs.redbox.requests import RedboxAccess, RedboxNotReached, RedboxRefused
from tests.cli.factories import slurmcluster, slurmjob, view

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
WAITING = view("wait-def34", "Submitted", jobID="13", state="PENDING", reason="Priority")
UNKNOWN = "Slurm's estimate is not known: "
REASON = {"reason": "Resources"}
NOT_FOUND, CONFLICT, UNAVAILABLE = (RedboxRefused("no", status) for status in (404, 409, 503))
AWAY, FORBIDDEN = RedboxNotReached("no route"), NotPermitted("no token")


@pytest.mark.parametrize(
    ("answer", "pattern"),
    [
        (
            {"startsAt": "2026-11-25T14:05:00Z", "nodes": "n[1-2]", **REASON},
            r"^Slurm expects it to start at 2026-11-2\S+, in about 2 h, on n\[1-2\] \(an estimate: ",
        ),
        ({"startsAt": "2026-11-25T12:25:10Z"}, r"in about 25 min \(an"),
        ({"startsAt": "2026-11-29T00:00:00Z"}, r"in about 4 days \(an"),
        ({"startsAt": "2026-11-25T12:00:00Z"}, r"at any moment \(an"),
        ({"notBefore": "2026-11-25T14:05:00Z", "reason": "BeginTime"}, r"^not before \S+, its begin time"),
        ({"reason": "JobHeldUser"}, "^not before it is released"),
        ({"reason": "Dependency"}, "before the jobs that it depends on have ended"),
        ({"reason": "DependencyNeverSatisfied"}, "^never"),
        (REASON, r"^Slurm has no estimate \[Resources\]: its scheduler has not come to this job"),
        ({"reason": ""}, "^Slurm has no estimate: its scheduler"),
    ],
)
def test_an_answer_is_said_with_how_sure_it_is(answer: dict[str, Any], pattern: str) -> None:
    assert re.search(pattern, expected_start.in_words(read_answer(StartOfJob, answer), NOW))


class ScriptedRedbox(RedboxAccess):
    """A red-box of which a test says what it answers, or how it refuses."""

    get_answer: dict[str, Any] | PluginError = REASON

    def get(self, wanted: type[Answer], path: str) -> Answer:
        assert path == f"/v1/jobs/{WAITING.uid}/expected-start?attempt=1"
        return read_answer(wanted, answered(self.get_answer))


def answered(answer: dict[str, Any] | PluginError) -> dict[str, Any]:
    if isinstance(answer, PluginError):
        raise answer
    return answer


def said(
    monkeypatch: pytest.MonkeyPatch,
    of_job: dict[str, Any] | PluginError,
    job: SlurmJobView = WAITING,
) -> str:
    monkeypatch.setattr(ScriptedRedbox, "get_answer", of_job)
    monkeypatch.setattr(expected_start, "access_of", lambda *_: ScriptedRedbox("https://x", "", "token"))
    return expected_start.expected_start(Program("/nonexistent"), job, ClusterView(slurmcluster()))


def test_slurms_estimate_is_of_this_job_also_where_its_script_is_in_a_config_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    obj = slurmjob("wait-def34", "Submitted", jobID="13")
    obj["spec"] = {"batchFrom": {"configMapKeyRef": {"name": "wait-def34-script", "key": "script"}}}
    answer = {"startsAt": "2126-11-25T14:05:00Z", "nodes": "n1", **REASON}
    for job in (WAITING, SlurmJobView(obj)):
        assert "on n1 (an estimate" in said(monkeypatch, answer, job=job)


def test_a_job_that_waits_no_more_is_not_given_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, CONFLICT) == "Slurm job 13 does not wait any more: ask again in a moment"


@pytest.mark.parametrize(
    "fault", [UNAVAILABLE, AWAY, FORBIDDEN, NOT_FOUND, {"reason": ["odd"], "startsAt": 7}]
)
def test_without_an_answer_it_is_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any] | PluginError
) -> None:
    """And no command for the login node, where a user may have no login."""
    words = said(monkeypatch, fault)
    assert words.startswith(UNKNOWN)
    assert len(words) > len(UNKNOWN)
    assert "squeue" not in words
