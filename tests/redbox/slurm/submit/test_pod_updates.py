"""An update of a pod is files in its private folder, written by its user's agent."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from redbox.agents.errors import SystemCallFailed
from redbox.core.workload_manager import ActionResult, WorkloadManagerError
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.submit.private_folder import private_folder
from redbox_api.pod_parts import PodUpdate
from redbox_api.pod_report import inputs_digest
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgents

MARK = "rb1.mark"
FOLDER = private_folder("/home/alice/work", MARK)


def source(*files: tuple[str, bytes], volume: str = "config") -> dict[str, Any]:
    given = [{"path": path, "content": base64.b64encode(content).decode()} for path, content in files]
    return {"volume": volume, "source": 3, "files": given}


async def write(agents: ScriptedAgents, *sources: dict[str, Any], **more: Any) -> ActionResult:
    update = PodUpdate.model_validate({"inputs": "v2 d", "sources": list(sources), **more})
    return await SlurmManager(agents, REDBOX).update_pod(ALICE, MARK, "{home}/work", update)


async def test_each_source_is_a_file_for_the_user_alone() -> None:
    agents = ScriptedAgents()
    assert (await write(agents, source(("a", b"one"), ("d/b", b"two")), activeDeadlineS=60)).done
    assert {*agents.files} == {f"{FOLDER}/update.config.3", f"{FOLDER}/update.pod"}
    header, _, contents = agents.files[f"{FOLDER}/update.config.3"].partition(b"\n")
    assert json.loads(header) == {
        "volume": "config",
        "source": 3,
        "files": [{"path": "a", "mode": 0o644, "size": 3}, {"path": "d/b", "mode": 0o644, "size": 3}],
    }
    assert contents == b"onetwo"
    assert json.loads(agents.files[f"{FOLDER}/update.pod"]) == {
        "inputs": inputs_digest("v2 d"),
        "activeDeadlineS": 60,
    }


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (source(("../x", b"")), "leaves its volume"),
        (source(("..data", b"")), r"begins with `\.\.`"),
        (source(("a", b""), ("a/b", b"")), "is a file, and the folder"),
        (source(("a", bytes(6 << 20))), "more than 5242880"),
    ],
)
async def test_what_cannot_be_in_a_volume_is_refused_before_anything_is_written(
    given: dict[str, Any], why: str
) -> None:
    agents = ScriptedAgents()
    outcome = await write(agents, given)
    assert not outcome.done
    assert re.search(why, outcome.detail)
    assert agents.files == {}


async def test_a_full_quota_is_said_and_may_pass() -> None:
    agents = ScriptedAgents(no_directory=SystemCallFailed(122, "Disk quota exceeded", "/home/alice/work"))
    with pytest.raises(WorkloadManagerError, match="Disk quota exceeded"):
        await write(agents, source(("a", b"one")))
