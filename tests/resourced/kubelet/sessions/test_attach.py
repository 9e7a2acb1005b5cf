"""kubectl attach to a pod on a virtual node: its main process, or its job's log from now on."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_resourced.kubelet.logs.handler import LogHandler
from redbox_resourced.kubelet.logs.pod_log import PodLog
from redbox_resourced.kubelet.logs.query import LogRequest
from redbox_resourced.pods.pod_view import read_pod
from tests.resourced.fakes import JOB
from tests.resourced.kubelet.sessions.harness import SUCCESS, kubelet_api, open_streams
from tests.resourced.kubelet.spdy.harness import data
from tests.resourced.pods.factories import manifest, running_pod
from tests.resourced.pods.pod_life_harness import until

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


def with_stdin(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "main", "image": "busybox", "stdin": True, **more}]


async def test_a_container_with_stdin_is_attached_to_its_main_process() -> None:
    async with kubelet_api(containers=with_stdin()) as stand:
        client = await stand.request(ATTACH, [("input", "1"), ("output", "1"), ("error", "1")])
        open_streams(client, "input output error")
        client.send(data(client.streams["stdin"], b"one\n"))
        await client.until(lambda _: client.text("stdout") == b"one\n")
        client.send(data(client.streams["stdin"], b"", is_last=True))
        await client.rest()
        assert client.final_status == SUCCESS
        side = stand.redbox.sides[0]
        assert {name: value for name, value in side.command.items() if value} == {
            "attach": True,
            "container": "main",
            "stdin": True,
        }


async def test_its_terminal_has_the_clients_size() -> None:
    async with kubelet_api(containers=with_stdin(tty=True)) as stand:
        client = await stand.request(ATTACH, [("input", "1"), ("output", "1"), ("tty", "1")])
        open_streams(client, "input output tty")
        client.send(data(client.streams["resize"], b'{"Width":101,"Height":33}'))
        client.send(data(client.streams["stdin"], b"", is_last=True))
        await client.rest()
        command = stand.redbox.sides[0].command
        assert (command["tty"], command["size"]) == (True, {"columns": 101, "rows": 33})


async def test_a_terminal_is_the_containers_and_not_the_clients() -> None:
    async with kubelet_api(containers=with_stdin()) as stand:
        client = await stand.request(ATTACH, [("input", "1"), ("output", "1"), ("tty", "1")])
        open_streams(client, "input output tty")
        client.send(data(client.streams["stdin"], b"", is_last=True))
        await client.rest()
        assert stand.redbox.sides[0].command["tty"] is False


async def test_an_init_container_with_a_terminal_alone_takes_no_input() -> None:
    init = [{"name": "setup", "image": "busybox", "tty": True}]
    async with kubelet_api(initContainers=init) as stand:

        async def end(side: Any) -> None:
            await side.send(1, b"drawn")
            await side.end(SUCCESS)

        stand.redbox.script = end
        client = await stand.request("/attach/alice/train/setup", [("input", "1"), ("output", "1")])
        open_streams(client, "input output")
        await client.rest()
        assert client.text("stdout") == b"drawn"
        command = stand.redbox.sides[0].command
        assert (command["attach"], command["container"], command["stdin"]) == (True, "setup", False)


async def test_a_container_of_kubectl_debug_is_entered_and_attached_to_by_its_name() -> None:
    async with kubelet_api() as stand:
        added = {"name": "dbg", "image": "busybox", "stdin": True, "tty": True}
        stand.serve(running_pod("Running", ephemeralContainers=[added]))
        for path in ("/exec/alice/train/dbg", "/attach/alice/train/dbg"):
            query = [("command", "x"), ("input", "1"), ("output", "1"), ("error", "1"), ("tty", "1")]
            client = await stand.request(path, query)
            assert client.status == 101
            open_streams(client, "input output tty")
            await until(lambda: any(side.command for side in stand.redbox.sides))
            side = stand.redbox.sides.pop()
            assert (side.command["container"], side.command["tty"]) == ("dbg", True)
            assert side.command["attach"] is path.startswith("/attach")


async def test_the_log_of_a_container_that_was_refused_says_why() -> None:
    """Which kubectl debug shows of one that has ended."""
    async with kubelet_api() as stand:
        added = {"name": "dbg", "image": "busybox"}
        ended = {"terminated": {"exitCode": 128, "reason": "Unsupported", "message": "no capability"}}
        status = {"phase": "Running", "ephemeralContainerStatuses": [{"name": "dbg", "state": ended}]}
        stand.serve(read_pod(manifest(status, ephemeralContainers=[added])))
        log = await stand.request("/containerLogs/alice/train/dbg", method="GET")
        assert (log.status, b"never started: no capability" in log.body) == (400, True)
