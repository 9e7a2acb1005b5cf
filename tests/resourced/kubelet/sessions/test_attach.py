"""kubectl attach to a pod on a virtual node: its job's log, from now on."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_resourced.kubelet.logs.handler import LogHandler
from redbox_resourced.kubelet.logs.pod_log import PodLog
from redbox_resourced.kubelet.logs.query import LogRequest
from tests.resourced.fakes import JOB
from tests.resourced.kubelet.sessions.harness import SUCCESS, kubelet_api, open_streams

ATTACH = "/attach/alice/train/main"


def attached_to(
    monkeypatch: pytest.MonkeyPatch, text: bytes, error: Exception | None = None
) -> list[LogRequest]:
    """Instead of a log of red-box's; the requests for one."""
    asked: list[LogRequest] = []

    async def copy(_: PodLog, request: LogRequest, write: Any) -> None:
        asked.append(request)
        await write(text)
        if error:
            raise error

    async def find(*given: Any) -> Any:
        return PodLog(None, JOB), given[-1]  # type: ignore[arg-type]

    monkeypatch.setattr(PodLog, "copy", copy)
    monkeypatch.setattr(LogHandler, "find_log", find)
    return asked


async def test_the_log_from_now_on_is_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = attached_to(monkeypatch, b"line\n")
    async with kubelet_api() as stand:
        client = await stand.request(ATTACH, [("output", "1"), ("error", "1")])
        open_streams(client, "output error")
        await client.rest()
        assert (client.text("stdout"), client.text("stderr"), client.final_status) == (
            b"line\n",
            b"",
            SUCCESS,
        )
        assert asked == [LogRequest(follow=True, tail_lines=0)]


async def test_a_log_that_breaks_off_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    attached_to(monkeypatch, b"line\n", TimeoutError("it was silent"))
    async with kubelet_api() as stand:
        client = await stand.request(ATTACH, [("output", "1")])
        open_streams(client, "output")
        await client.rest()
        assert "it was silent" in client.final_status["message"]


async def test_input_is_refused_by_a_sentence() -> None:
    async with kubelet_api() as stand:
        client = await stand.request(ATTACH, [("input", "1"), ("output", "1")])
        assert (client.status, client.refusal["kind"]) == (400, "Status")
        assert "kubectl exec -it" in client.refusal["message"]


async def test_a_log_that_is_refused_is_a_status() -> None:
    async with kubelet_api() as stand:
        stand.redbox.job = JOB  # without a report of its containers
        client = await stand.request(ATTACH, [("output", "1")])
        assert (client.status, client.refusal["kind"]) == (400, "Status")
