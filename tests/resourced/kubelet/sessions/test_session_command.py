"""The companion's program in a pod that has no companion: `redbox-companion exec --node n2 -- CMD`."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_resourced.kubelet.rejection import RequestRejected
from redbox_resourced.kubelet.sessions.session_command import SessionCommand, read_session_command
from redbox_resourced.pods.pod_view import read_pod
from redbox_shared.pod_contract import LOGIN_SHELL
from tests.resourced.kubelet.sessions.harness import Stand, kubelet_api
from tests.resourced.kubelet.spdy.harness import data
from tests.resourced.pods.factories import manifest

OF_SLURMJOB = {"apiVersion": "redbox.dev/v1", "kind": "SlurmJob", "name": "t", "uid": "u", "controller": True}
PROGRAM = "redbox-companion"


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (("id", "-un"), SessionCommand(["id", "-un"])),
        ((PROGRAM, "exec", "--", "id", "-un"), SessionCommand(["id", "-un"])),
        ((PROGRAM, "exec", "--node=n2", "--task=3", "--", "id"), SessionCommand(["id"], "n2", "3")),
        ((PROGRAM, "exec", "--task", "0", "id", "--node=x"), SessionCommand(["id", "--node=x"], None, "0")),
        ((PROGRAM, "shell", "--node", "n2"), SessionCommand(LOGIN_SHELL, "n2")),
    ],
)
def test_node_and_task_are_read_as_the_companion_reads_them(words: tuple[str, ...], read: Any) -> None:
    found = read_session_command(words)
    assert (list(found.command), found.node, found.task) == (list(read.command), read.node, read.task)


@pytest.mark.parametrize(
    "words", ["", "exec", "exec --", "shell -- id", "exec --user=root -- id", "exec --task", "run"]
)
def test_what_the_program_has_not_is_one_sentence_with_what_it_has(words: str) -> None:
    with pytest.raises(RequestRejected, match="--node NODE"):
        read_session_command([PROGRAM, *words.split()])


async def asked_of_redbox(stand: Stand, *command: str) -> dict[str, Any]:
    client = await stand.exec(*command)
    assert client.status == 101, client.body
    client.send(data(client.streams["stdin"], b"", is_last=True))
    await client.rest()
    return stand.redbox.sides[-1].command


async def test_a_slurmjobs_pod_is_entered_by_node_and_task() -> None:
    async with kubelet_api() as stand:
        stand.serve(read_pod(manifest(metadata={"ownerReferences": [OF_SLURMJOB]})))
        asked = await asked_of_redbox(stand, PROGRAM, "exec", "--node=n2", "--task=3", "--", "id", "-un")
        assert (asked["command"], asked["node"], asked["task"]) == (["id", "-un"], "n2", 3)


async def test_a_node_and_a_task_that_none_can_have_are_refused() -> None:
    async with kubelet_api() as stand:
        stand.serve(read_pod(manifest(metadata={"ownerReferences": [OF_SLURMJOB]})))
        for option in ("--node=a b", "--task=x", "--task=-1"):
            client = await stand.exec(PROGRAM, "exec", option, "--", "id")
            assert client.status == 400
            assert option[2:6] in client.refusal["message"]
        assert stand.redbox.sides == []


async def test_a_pod_of_its_own_runs_the_program_of_its_image() -> None:
    async with kubelet_api() as stand:
        asked = await asked_of_redbox(stand, PROGRAM, "exec", "--task=3", "--", "id")
        assert (asked["command"], asked["task"]) == ([PROGRAM, "exec", "--task=3", "--", "id"], None)
