"""Who one is, and what there is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redbox_api.models import Amounts, Partition, PartitionLimits
from tests.redbox.commands.conftest import Run
from tests.redbox.http.harness import Stand

DEBUG = Partition(
    name="debug",
    is_default=True,
    state="UP",
    total=Amounts(nodes=3, cpus=12, mem_mb=6000),
    free=Amounts(nodes=1, cpus=4, mem_mb=2000),
    limits=PartitionLimits(max_time_s=3600),
    features=["avx2", "ib"],
)


async def test_who_one_is(redbox: Run) -> None:
    lines = dict(line.split(maxsplit=1) for line in (await redbox("whoami")).stdout.splitlines())
    assert (lines["user"], lines["roles"], lines["slurmAccounts"]) == ("alice", "submit", "physics")


async def test_partitions_with_what_is_free(
    stand: Stand, redbox: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def partitions(*_: Any) -> tuple[Partition, ...]:
        return (
            DEBUG,
            DEBUG.model_copy(update={"name": "Long_1", "is_default": False, "limits": PartitionLimits()}),
        )

    monkeypatch.setattr(stand.slurm, "partitions", partitions)
    lines = [line.split() for line in (await redbox("partitions")).stdout.splitlines()]
    assert lines[1] == ["debug*", "UP", "1/3", "4/12", "6000", "MB", "0/0", "1h", "avx2,", "ib"]
    assert lines[2][0] == "Long_1"
    assert "none" in lines[2]
    shown = json.loads((await redbox("partitions", "-o", "json")).stdout)
    assert shown[0]["limits"] == {"maxTimeS": 3600}
