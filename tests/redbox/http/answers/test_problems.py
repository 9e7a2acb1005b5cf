"""Every error of the parts below becomes the answer that says whether to try again."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from redbox.agents.errors import AgentDied, AgentRefused, AgentUnavailable, SystemCallFailed
from redbox.callers.errors import AuthenticationUnavailable
from redbox.core.workload_manager import WorkloadManagerError
from redbox.jobs.errors import Gone, JobsBusy, JournalFull, JournalUnreadable
from redbox.logs.interfaces import LogFileMissing, LogFileUnavailable, LogFileUnreadable
from tests.redbox.http.harness import Stand, problem

ERRORS: list[tuple[Exception, int, bool]] = [
    (AuthenticationUnavailable("the API server does not answer"), 503, True),
    (JobsBusy("the submit takes long", retry_after=7), 503, True),
    (Gone("too old"), 410, False),
    (JournalFull("the disk is full"), 503, True),
    (JournalUnreadable("it is damaged"), 503, False),
    (LogFileMissing("no file"), 404, False),
    (LogFileUnreadable("Permission denied"), 403, False),
    (LogFileUnavailable("the file system hangs"), 503, True),
    (AgentUnavailable("two agents have not ended"), 503, True),
    (AgentRefused("sudo does not allow it"), 403, False),
    (AgentDied("it ended", retry=False), 503, False),
    (AgentDied("it ended", retry=True), 503, True),
    (SystemCallFailed(28, "No space left on device", "/home/a"), 422, False),
    (WorkloadManagerError("squeue: error: Unable to contact slurm controller"), 503, True),
    (TimeoutError("no answer within 60 s"), 503, True),
]


@pytest.mark.parametrize("expected", ERRORS, ids=lambda expected: type(expected[0]).__name__)
async def test_an_error_has_its_status_and_says_whether_to_try_again(
    stand: Stand,
    alice: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    expected: tuple[Exception, int, bool],
) -> None:
    error, status, retry = expected
    fail_with(error, stand, monkeypatch)
    answer = await alice.get("/v1/whoami")
    assert (answer.status_code, problem(answer)["retry"]) == (status, retry)
    assert problem(answer)["detail"] == str(error)
    assert ("retry-after" in answer.headers) == retry


@pytest.mark.parametrize("code", [0xDCE9, 0xD83D], ids=["no UTF-8", "no text at all"])
async def test_a_problem_with_a_file_whose_name_cannot_be_sent_is_told_all_the_same(
    stand: Stand, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    fail_with(SystemCallFailed(13, "Permission denied", f"/home/caf{chr(code)}"), stand, monkeypatch)
    answer = await alice.get("/v1/whoami")
    assert (answer.status_code, problem(answer)["detail"]) == (403, "/home/caf\ufffd: Permission denied")


async def test_a_retry_that_has_its_time_says_when(
    stand: Stand, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with(JobsBusy("later", retry_after=7), stand, monkeypatch)
    assert (await alice.get("/v1/whoami")).headers["retry-after"] == "7"


async def test_a_defect_is_answered_with_the_id_under_which_the_log_tells_it(
    stand: Stand,
    alice: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    counted = 'redbox_requests_total{method="GET",route="/v1/whoami",status="500"}'
    assert f"{counted} 0.0" in (await alice.get("/metrics")).text
    logging.disable()  # uvicorn's own traceback
    fail_with(ZeroDivisionError("secret details"), stand, monkeypatch)
    answer = await alice.get("/v1/whoami")
    logging.disable(logging.NOTSET)
    assert (answer.status_code, answer.json()["retry"]) == (500, True)
    assert "secret details" not in answer.text
    assert answer.json()["requestId"] in capsys.readouterr().out
    assert f"{counted} 1.0" in (await alice.get("/metrics")).text


def fail_with(error: Exception, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whoami(*_: Any) -> None:
        raise error

    monkeypatch.setattr(stand.jobs, "whoami", whoami)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v2", 404), ("PATCH", "/v1/jobs", 405)])
async def test_what_the_framework_refuses_has_the_same_form(
    alice: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await alice.request(method, path)
    assert answer.status_code == status
    problem(answer)


async def test_a_method_that_is_not_there_names_those_that_are(alice: httpx.AsyncClient) -> None:
    assert (await alice.patch("/v1/jobs")).headers["allow"] == "GET"


async def test_each_request_has_an_id_of_its_own(alice: httpx.AsyncClient) -> None:
    answers = [await alice.get("/healthz") for _ in range(3)]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 3


async def test_health_is_everybodys_to_ask_and_readiness_says_no_reason(stand: Stand) -> None:
    stand.ready.reason = "the background work has ended"
    async with stand.by_token("") as anybody:
        assert (await anybody.get("/healthz")).text == "ok\n"
        answer = await anybody.get("/readyz")
        assert answer.status_code == 503
        assert "background" not in answer.text
        for path in ("/metrics", "/openapi.json", "/v1/cluster"):
            assert (await anybody.get(path)).status_code == 401, path


async def test_the_metrics_hold_no_names(stand: Stand, alice: httpx.AsyncClient) -> None:
    _, log = await stand.writing("very-secret-key", b"hello\n")
    await alice.get("/v1/jobs/very-secret-key/logs/stdout")
    text = (await alice.get("/metrics")).text
    assert 'redbox_jobs{phase="Running"} 1.0' in text
    assert "redbox_log_bytes_total 6.0" in text
    for name in ("alice", "very-secret-key", log.name, str(stand.home), "physics"):
        assert name not in text
