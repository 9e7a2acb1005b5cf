"""A Controller that begins with a backup."""

from __future__ import annotations

from typing import Any

from redbox_hosting.api import names
from redbox_hosting.controllers.clusters.slurmctld_pod import end_of_slurmctld
from redbox_kube.api import kinds
from tests.hosting.controllers.controller_bench import (
    SLURM,
    api,
    at,
    condition,
    eventually,
    operator,
    put_slurmctld_pod,
)
from tests.kube.fakes import FakeApiServer

__all__ = ["api", "operator"]
RESTORE = {"redbox": {"restore": {"claimName": "slurm-backup", "path": "1", "firstJobId": 100_047}}}
SLURMCTLD = at(kinds.STATEFUL_SET, "slurm-controller")
WORKER = {names.LABEL_ROLE: "slurmd", names.LABEL_CLUSTER: "slurm"}
WORDS = "its state is not restored: it has a state already"
FAILED = {"terminated": {"exitCode": 1, "message": "x\nredbox-slurmpod: restore: it has a state already\n"}}


def put_controller(api: FakeApiServer) -> None:
    api.put(SLURM, metadata={"creationTimestamp": "2026-11-29T15:00:00Z"}, spec=RESTORE)


def put_worker(api: FakeApiServer, name: str, created: str) -> None:
    api.put(at(kinds.POD, name), metadata={"labels": WORKER, "creationTimestamp": created})


async def test_workers_of_before_hold_a_restore_up_and_newer_ones_do_not(api: FakeApiServer) -> None:
    put_worker(api, "cpu-0", "2026-11-29T14:59:59Z")
    put_worker(api, "cpu-1", "2026-11-29T15:00:00Z")
    put_controller(api)
    await eventually(
        lambda: "workers of before are there (cpu-0)" in condition(api, "Daemons").get("message", "")
    )
    assert SLURMCTLD not in api.objects
    api.remove(at(kinds.POD, "cpu-0"))
    api.put(SLURM, metadata={**api.objects[SLURM]["metadata"], "labels": {"a": "b"}}, spec=RESTORE)
    await eventually(lambda: SLURMCTLD in api.objects)


async def test_the_words_of_a_restore_that_failed_are_in_a_condition(api: FakeApiServer) -> None:
    put_controller(api)
    await eventually(lambda: SLURMCTLD in api.objects)
    put_slurmctld_pod(api, initContainerStatuses=[{"name": "restore", "state": FAILED}])
    words = f"slurmctld does not start: {WORDS}"
    await eventually(lambda: condition(api, "Daemons").get("message", "") == words)


def test_only_a_restore_that_ended_badly_has_words() -> None:
    def words(*statuses: dict[str, Any]) -> str:
        return end_of_slurmctld({"status": {"initContainerStatuses": [*statuses]}})

    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    well = {"terminated": {"exitCode": 0, "message": "redbox-slurmpod: restored"}}
    assert words({"name": "restore", "state": waits, "lastState": FAILED}) == WORDS
    assert (
        words({"name": "restore", "state": {"terminated": {"exitCode": 137}}})
        == "its state is not restored: exit status 137"
    )
    assert words({"name": "restore", "state": well, "lastState": FAILED}) == ""
    assert words({"name": "other", "state": FAILED}) == ""
    assert end_of_slurmctld({}) == ""
