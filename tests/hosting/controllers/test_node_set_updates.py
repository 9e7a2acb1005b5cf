"""Workers get a changed template one after the other, without the end of a job."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.api import names
from tests.hosting.controllers.node_set_bench import LIMITS, SLURM, WORKERS, NodeSetBench, bench, operator

NEW = {"extraConf": "Weight=2"}
TWO_AT_ONCE = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}
ON_DELETE = {"updateStrategy": {"type": "OnDelete"}}


def uids(it: NodeSetBench) -> set[str]:
    return {it.pod(name)["metadata"]["uid"] for name in it.pods}


def is_condemned(it: NodeSetBench, name: str) -> bool:
    return names.ANNOTATION_CONDEMNED in it.pod(name)["metadata"]["annotations"]


async def starts_all_until_updated(it: NodeSetBench, replicas: int) -> None:
    def is_updated() -> bool:
        it.kubelet.start_all()
        generation = it.api.objects[WORKERS]["metadata"]["generation"]
        counts = [it.status.get(name) for name in ("updatedReplicas", "availableReplicas", "replicas")]
        return it.status.get("observedGeneration") == generation and counts == [replicas] * 3

    await it.has(is_updated)


async def test_all_workers_are_replaced_under_their_names(it: NodeSetBench) -> None:
    await it.up(3)
    before = uids(it)
    it.scale(3, **NEW)
    await starts_all_until_updated(it, 3)
    assert it.pods == ["w-0", "w-1", "w-2"]
    assert not uids(it) & before
    await it.has(lambda: it.condition("Ready")["status"] == "True")
    assert it.api.names("ControllerRevision") == [f"w-{it.status['nodeSetHash']}"]


async def test_workers_are_replaced_for_a_claim_of_homes(it: NodeSetBench) -> None:
    """Without it they would have no homes."""
    await it.up(2)
    before = uids(it)
    found = it.api.objects[SLURM]
    spec = {**found["spec"], "redbox": {"homes": {"claimName": "homes"}}}
    it.api.put(SLURM, {**found, "spec": spec})

    def is_replaced() -> bool:
        it.kubelet.start_all()
        return it.pods == ["w-0", "w-1"] and not uids(it) & before

    await it.has(is_replaced)
    volumes = [volume["name"] for volume in it.pod("w-0")["spec"]["volumes"]]
    assert "homes" in volumes


async def test_an_image_that_does_not_start_stops_after_one(it: NodeSetBench) -> None:
    await it.up(4, **TWO_AT_ONCE)
    before = uids(it)
    it.scale(4, **NEW, **TWO_AT_ONCE)
    await it.has(lambda: len(uids(it) & before) == 3 and len(it.pods) == 4)
    (new,) = [name for name in it.pods if it.pod(name)["metadata"]["uid"] not in before]
    it.kubelet.fail_to_start(new)
    await it.has(lambda: "no such image" in it.condition("Degraded").get("message", ""))
    await it.settled()
    assert len(uids(it) & before) == 3
    assert sum(is_condemned(it, name) for name in it.pods) == 0
    it.scale(4, extraConf="Weight=3", **TWO_AT_ONCE)  # the cure
    await starts_all_until_updated(it, 4)


@pytest.mark.parametrize(
    ("states", "reason", "words"),
    [
        ({"DOWN"}, "gres/gpu count too low", "the node is DOWN: gres/gpu count too low"),
        ({"IDLE", "INVALID_REG"}, "", "the node is INVALID_REG"),
        ({"IDLE", "DRAIN"}, "Low RealMemory", "the node is DRAIN: Low RealMemory"),
        (None, "", "the node's record belongs to another pod"),
    ],
)
async def test_workers_that_slurm_cannot_use_stop_the_update_after_one(
    it: NodeSetBench, states: set[str] | None, reason: str, words: str
) -> None:
    await it.up(4, **TWO_AT_ONCE)
    before = uids(it)
    it.scale(4, **NEW, **TWO_AT_ONCE)
    await it.has(lambda: len(uids(it) & before) == 3 and len(it.pods) == 4)
    (new,) = [name for name in it.pods if it.pod(name)["metadata"]["uid"] not in before]
    it.slurm.states[new] = states or {"IDLE"}
    it.kubelet.start(new)
    it.slurm.reasons[new] = reason
    if states is None:
        it.slurm.register(new, "uid-of-another", "10.0.0.9")
    await it.has(lambda: f"{new}: {words}" in it.condition("Degraded").get("message", ""))
    await it.settled()
    assert len(uids(it) & before) == 3
    assert it.status["availableReplicas"] == 3
    assert it.condition("Ready")["status"] == "False"


async def test_a_busy_worker_is_updated_after_its_job(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.start(7, "w-0")
    before = uids(it)
    it.scale(1, **NEW)
    await it.has(lambda: it.slurm.reasons.get("w-0") == "red-box: update")
    await it.settled()
    assert uids(it) == before
    it.slurm.end(7)
    await starts_all_until_updated(it, 1)
    assert it.api.deletions == [("w-0", [])]


async def test_a_change_that_is_taken_back_keeps_the_workers(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.start(7, "w-0")
    before = uids(it)
    it.scale(1, **NEW)
    await it.has(lambda: "DRAIN" in it.slurm.states["w-0"])
    it.scale(1)
    await it.has(lambda: "DRAIN" not in it.slurm.states["w-0"])
    assert uids(it) == before


async def test_with_on_delete_a_worker_is_updated_when_it_goes(it: NodeSetBench) -> None:
    await it.up(2, **ON_DELETE)
    before = uids(it)
    it.scale(2, **NEW, **ON_DELETE)
    await it.has(lambda: it.status.get("updatedReplicas") == 0)
    await it.settled()
    assert uids(it) == before
    it.kubelet.annotate("w-0", condemned="now")
    await it.has(lambda: len(uids(it) & before) == 1 and it.pods == ["w-0", "w-1"])
    revisions = {name: it.pod(name)["metadata"]["labels"][names.LABEL_REVISION] for name in it.pods}
    assert revisions["w-0"] == it.status["nodeSetHash"] != revisions["w-1"]


async def test_restarted_at_replaces_all(it: NodeSetBench) -> None:
    await it.up(2)
    before = uids(it)
    template = {"metadata": {"annotations": {"slurm.redbox.dev/restartedAt": "2026-01-02"}}}
    it.scale(2, template=template)
    await starts_all_until_updated(it, 2)
    assert not uids(it) & before


async def test_changed_limits_make_a_new_record(it: NodeSetBench) -> None:
    await it.up(1)
    it.scale(1, slurmd={"resources": {"limits": {**LIMITS, "cpu": "2"}}})
    await starts_all_until_updated(it, 1)
    assert ("delete", "w-0") in it.slurm.writes


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        ({"redbox": {"drainTimeout": 5}}, True),
        ({"minReadySeconds": 0, "partition": {"enabled": True}}, True),
        ({"redbox": {"shmSize": "16Mi"}}, False),
    ],
)
async def test_what_a_worker_is_not_made_of_replaces_none(
    it: NodeSetBench, change: dict[str, Any], *, is_kept: bool
) -> None:
    await it.up(1)
    hashed = it.status["nodeSetHash"]
    it.scale(1, **change)
    await it.has(lambda: it.status.get("observedGeneration") == 2)
    assert (it.status["nodeSetHash"] == hashed) is is_kept


async def test_an_upgrade_of_the_operator_replaces_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of the last two formats are kept; older ones are updated through the gate."""
    async with bench(runs=False) as it:
        async with operator(it.api, it.slurm):
            await it.up(2)
            before = uids(it)
        monkeypatch.setattr(names, "POD_FORMAT", names.POD_FORMAT + 1)
        async with operator(it.api, it.slurm):
            await it.settled()
            assert uids(it) == before
            assert it.status["updatedReplicas"] == 2
        monkeypatch.setattr(names, "POD_FORMAT", names.POD_FORMAT + 1)
        async with operator(it.api, it.slurm):
            await it.has(lambda: len(uids(it) & before) == 1 and len(it.pods) == 2)
            await starts_all_until_updated(it, 2)
            assert not uids(it) & before


async def test_a_template_beyond_the_profile_is_refused_by_name_and_no_worker_goes_for_it(
    it: NodeSetBench,
) -> None:
    await it.up(2)
    it.scale(3, template={"spec": {"hostPID": True}})
    await it.has(lambda: "Plain does not allow hostPID" in it.condition("Degraded").get("message", ""))
    assert it.condition("Ready")["status"] == "False"
    await it.settled()
    assert it.pods == ["w-0", "w-1"]
    assert not any(is_condemned(it, name) for name in it.pods)
    it.scale(1, template={"spec": {"hostPID": True}})
    await it.has(lambda: len(it.pods) == 1)
