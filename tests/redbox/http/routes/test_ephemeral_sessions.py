"""An ephemeral container over a real WebSocket, agent and relay, where no runner is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from redbox_api.pod_parts import EphemeralProgram
from redbox_api.sessions.client import open_exec
from redbox_api.sessions.parts import ExecRequest, SessionStatus
from tests.redbox.http.harness import Stand
from tests.redbox.http.routes.harness import collect, running

POD: dict[str, Any] = {
    "name": "p",
    "namespace": "physics",
    "uid": "u",
    "containers": [{"name": "c", "image": "docker://x"}],
}
ADDED = EphemeralProgram(
    name="debug", image="docker://busybox", command=["sh"], args=["-c", "id"], target="c", tty=True
)


async def order(stand: Stand) -> SessionStatus:
    request = ExecRequest(ephemeral=ADDED, stdin=False)
    async with stand.client() as client, open_exec(client, "k1", request) as session:
        return (await collect(session))[2]


async def test_it_is_for_the_runner_of_a_pod_and_audited_with_its_command(stand: Stand) -> None:
    await running(stand, batch=None, pod=POD)
    status = await order(stand)
    assert (status.reason, "does not take orders" in status.message) == ("CannotStart", True)
    opened = next(entry for entry in stand.audited if entry.outcome == "opened")
    assert json.loads(opened.detail or "") == {
        "image": "docker://busybox",
        "target": "c",
        "command": json.dumps(["sh", "-c", "id"]),
        "tty": True,
        "container": "debug",
        "node": "n1",
    }


async def test_a_job_that_is_no_pod_has_no_containers_to_add(stand: Stand) -> None:
    await running(stand)
    status = await order(stand)
    assert "not a pod" in status.message


@pytest.mark.parametrize(
    "more", [{"command": ("a",)}, {"attach": True, "container": "c"}, {"node": "n1"}, {"task": 1}]
)
def test_it_goes_with_nothing_else(more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="ephemeral goes without"):
        ExecRequest(ephemeral=ADDED, **more)
