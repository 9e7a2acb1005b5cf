"""Answers of a red-box: those of a real one are read, and those of a hostile one are a sentence."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubectl_slurm.errors import PluginError
from kubectl_slurm.slurmjobs.redbox.answers import (
    AnswerInvalid,
    IdentityAtRedbox,
    RunningUsage,
    RunningUsages,
    UsageAtEnd,
    UsagesAtEnd,
    read_answer,
)
from kubectl_slurm.slurmjobs.redbox.requests import RedboxAccess
from redbox_api.limits.response_model import ResponseModel
from redbox_api.models import (
    EndedUsage,
    EndedUsageList,
    JobUsage,
    OwnerRef,
    UsageList,
    WhoAmI,
)
from redbox_shared.wire import OFFSET_HEADER
from tests.cli.factories import slurmcluster, slurmjob
from tests.cli.harness import Kubectl, run
from tests.cli.redbox import RedboxInPlace, redbox_in_place

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
OWNER = OwnerRef(cluster="k8s", namespace="alice", account="default")
RUNNING = {"key": "uid-of-train-abc12", "attempt": 1, "cpuSeconds": 1.5, "memoryBytes": 4096}
ENDED = {"key": "u", "attempt": 1, "cpus": 1, "allocatedCpuSeconds": 9, "elapsedSeconds": 9}


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (
            WhoAmI(identity="i", owner=OWNER, user="alice", roles=["submit"], slurm_qos=["normal"]),
            IdentityAtRedbox(("submit",), "alice", slurm_qos=("normal",)),
        ),
        (WhoAmI(identity="i", owner=OWNER, roles=[]), IdentityAtRedbox(())),
        (
            UsageList(items=[JobUsage(key="u", attempt=2, measured_at=NOW, cpu_seconds=3, memory_bytes=4)]),
            RunningUsages((RunningUsage("u", 2, 3, 4),)),
        ),
        (
            EndedUsageList(
                items=[
                    EndedUsage(
                        key="u", attempt=1, cpus=2, cpu_seconds=3, allocated_cpu_seconds=4, elapsed_seconds=5
                    )
                ],
                accounting=True,
            ),
            UsagesAtEnd((UsageAtEnd("u", 1, 2, 4, 5, cpu_seconds=3),), accounting=True),
        ),
    ],
)
def test_an_answer_of_red_box_is_read(answer: ResponseModel, read: object) -> None:
    for without_nulls in (True, False):
        document = answer.model_dump(mode="json", by_alias=True, exclude_none=without_nulls)
        assert read_answer(type(read), document) == read


@pytest.mark.parametrize(
    ("wanted", "document", "sentence"),
    [
        (RunningUsages, {}, "has no items"),
        (RunningUsages, {"items": {}}, "something else than a list as items"),
        (RunningUsages, {"items": ["x"]}, "something else than an object as items[0]"),
        (RunningUsages, {"items": [RUNNING, {**RUNNING, "key": 1}]}, "text as items[1].key"),
        (RunningUsages, {"items": [{**RUNNING, "attempt": "1"}]}, "a whole number as items[0].attempt"),
        (RunningUsages, {"items": [{**RUNNING, "attempt": True}]}, "a whole number as items[0].attempt"),
        (RunningUsages, {"items": [{**RUNNING, "cpuSeconds": []}]}, "a number as items[0].cpuSeconds"),
        (RunningUsages, {"items": [{**RUNNING, "cpuSeconds": 1e999}]}, "an amount as items[0].cpuSeconds"),
        (RunningUsages, {"items": [{**RUNNING, "memoryBytes": 10**400}]}, "amount as items[0].memoryBytes"),
        (RunningUsages, {"items": [{**RUNNING, "memoryBytes": -1}]}, "amount as items[0].memoryBytes"),
        (UsagesAtEnd, {"items": []}, "has no accounting"),
        (UsagesAtEnd, {"items": [], "accounting": "no"}, "true or false as accounting"),
        (UsagesAtEnd, {"items": [{**ENDED, "cpuSeconds": "3"}], "accounting": True}, "items[0].cpuSeconds"),
        (IdentityAtRedbox, {"user": {}, "roles": []}, "text as user"),
        (IdentityAtRedbox, {"roles": "submit"}, "a list as roles"),
        (IdentityAtRedbox, {"roles": [], "partitions": [3]}, "text as partitions[0]"),
    ],
)
def test_an_answer_of_wrong_keys_or_types_is_refused(wanted: type, document: Any, sentence: str) -> None:
    with pytest.raises(AnswerInvalid) as refusal:
        read_answer(wanted, document)
    assert sentence in str(refusal.value)


@pytest.fixture
def redbox(kubectl: Kubectl, tmp_path: Path) -> Iterator[RedboxInPlace]:
    """Behind the SlurmEndpoint of all jobs of the namespace."""
    with redbox_in_place(tmp_path) as redbox:
        obj = slurmcluster()
        obj["kind"] = "SlurmEndpoint"
        obj["metadata"] |= {"name": "mine", "namespace": "alice", "uid": "17"}
        obj["spec"] = {
            "endpoint": redbox.endpoint,
            "caBundle": base64.b64encode(redbox.authority).decode(),
        }
        kubectl.answers("endpoint", obj)
        kubectl.answers("endpoints", [obj])
        kubectl.answers("clusters", [])
        kubectl.answers("token", {})
        where: dict[str, Any] = {"cluster": None, "endpoint": "mine"}
        running = slurmjob(state="RUNNING", startedAt="2026-11-24T12:00:00Z", **where)
        waiting = slurmjob("wait", "Submitted", jobID="13", state="PENDING", **where)
        kubectl.answers("jobs", [running, waiting, slurmjob("done", "Succeeded", jobID="14", **where)])
        kubectl.answers("job", running)
        yield redbox


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Transfer-Encoding": "chunked"}, b"-5\r\n{}"),
        ({OFFSET_HEADER: "9" * 5000}, b"text"),
        ({OFFSET_HEADER: "-1"}, b"text"),
    ],
    ids=["chunk", "offset-too-large", "offset-below-0"],
)
def test_headers_that_are_wrong_are_a_sentence(
    redbox: RedboxInPlace, headers: dict[str, str], body: bytes
) -> None:
    redbox.headers, redbox.body = headers, body
    access = RedboxAccess(redbox.endpoint, redbox.authority.decode(), "token")
    with pytest.raises(PluginError):
        list(access.output("/v1/jobs/uid/logs/stdout"))
    with pytest.raises(PluginError):
        access.get(RunningUsages, "/v1/usage")


def test_a_red_box_that_sends_a_byte_now_and_then_has_a_deadline_for_the_whole_answer(
    redbox: RedboxInPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    redbox.body = json.dumps({"items": []}).encode()
    access = RedboxAccess(redbox.endpoint, redbox.authority.decode(), "token")
    assert access.get(RunningUsages, "/v1/usage") == RunningUsages(())
    monkeypatch.setattr("kubectl_slurm.slurmjobs.redbox.requests.WHOLE_ANSWER_S", 0.3)
    redbox.pause_s = 0.1  # each comes long before DEADLINE_S
    with pytest.raises(PluginError, match=r"did not send its whole answer in 0\.3 s"):
        access.get(RunningUsages, "/v1/usage")
    monkeypatch.setattr("kubectl_slurm.slurmjobs.redbox.requests.LOG_DEADLINE_S", 0.3)
    redbox.status = 403
    with pytest.raises(PluginError, match=r"did not send its whole answer in 0\.3 s"):
        list(access.output("/v1/jobs/uid/logs/stdout"))


def test_top_shows_what_a_red_box_answers(kubectl: Kubectl, redbox: RedboxInPlace) -> None:
    redbox.body = json.dumps({"items": [RUNNING]}).encode()
    ended = run(kubectl, "top", "--noheader")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split()[:2] == ["12", "train-abc12"]


@pytest.mark.parametrize("body", [b"{}", b"[" * 100_000], ids=["without-keys", "deep"])
@pytest.mark.parametrize(
    "words",
    [["top"], ["top", "done"], ["history", "--efficiency"], ["explain", "13"], ["doctor"]],
    ids=" ".join,
)
def test_a_hostile_answer_is_a_sentence(
    kubectl: Kubectl, redbox: RedboxInPlace, words: list[str], body: bytes
) -> None:
    redbox.body = body
    ended = run(kubectl, *words)
    assert ended.returncode == (1 if words == ["doctor"] else 0)
    assert "Traceback" not in ended.stderr
    if words != ["explain", "13"]:  # which then has squeue's estimate alone
        assert re.search("red-box('s answer has no | answered 200, and no JSON)", ended.stdout + ended.stderr)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"items":[' + b"{}," * 700_000 + b"{}]}", "more than 200,000 objects and lists"),
        (b'{"items":[' + b"0," * 2_100_000 + b"0]}", "more than 2,000,000 values"),
        (b'{"items":"' + b"x" * (17 << 20) + b'"}', "more than 16 MiB"),
    ],
)
def test_an_answer_that_would_fill_the_memory_is_not_parsed(
    redbox: RedboxInPlace, body: bytes, sentence: str
) -> None:
    redbox.body = body
    access = RedboxAccess(redbox.endpoint, redbox.authority.decode(), "token")
    with pytest.raises(AnswerInvalid, match=sentence):
        access.get(RunningUsages, "/v1/usage")
