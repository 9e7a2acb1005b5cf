"""What an uninstall decides: what is over, what it tells, what it takes from nodes, which CRDs stay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redbox_clusters.names import SLURM_JOBS
from redbox_kube.api.lease import LeaseObservation
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_kube.install.crd_upgrade import with_stored_versions
from redbox_operator.api.decode import RESOURCES
from redbox_operator.install.published_nodes import withdrawn
from redbox_operator.install.uninstall import (
    JobsPolicy,
    Uninstall,
    described,
    is_finished,
    trimmed,
)
from tests.kube.fakes import FakeApiServer


def job(**status: object) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "alice", "name": "long"},
        "spec": {"cluster": "hpc1"},
        "status": status,
    }


@pytest.mark.parametrize(
    ("phase", "finished"),
    [("Succeeded", True), ("Failed", True), ("Cancelled", True), ("Running", False), ("", False)],
)
def test_only_a_job_that_may_still_run_is_told(phase: str, *, finished: bool) -> None:
    assert is_finished(job(phase=phase)) is finished


def test_only_kinds_of_jobs_are_released() -> None:
    """SlurmEndpoints have no finalizer, and the hook has no right to them."""
    assert {kind.name for kind in RESOURCES} == {"SlurmJob", "WlmJob"}


def test_a_job_is_told_by_who_which_and_where() -> None:
    assert described(job(phase="Running", jobID="42")) == "alice/long: job 42 on hpc1, Running"
    assert described(job()) == "alice/long: no job id yet on hpc1, Pending"


def test_of_a_job_only_what_an_uninstall_needs_is_kept() -> None:
    """The hook has half a gigabyte, and holds all of them."""
    raw = job(phase="Running", jobID="42")
    raw["metadata"] |= {
        "uid": "0aa6-11",
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {"a": "b"},
    }
    raw["spec"]["batch"] = "#!/bin/sh\n" * 1000
    assert trimmed(raw) == {
        "metadata": {"namespace": "alice", "name": "long", "uid": "0aa6-11"},
        "spec": {"cluster": "hpc1"},
        "status": {"phase": "Running", "jobID": "42"},
    }
    assert described(trimmed(raw)) == described(raw)


def test_of_a_gateway_only_what_was_published_is_taken() -> None:
    key = "debug.hpc1.redbox.dev/nodes"
    node = {
        "metadata": {"labels": {"kubernetes.io/os": "linux", key: "3"}, "annotations": {"other": "x"}},
        "status": {"capacity": {"cpu": "4", key: "3"}, "allocatable": {"cpu": "4", key: "3"}},
    }
    metadata, status = withdrawn(node)
    assert metadata == {"labels": {key: None}}
    assert status == {"capacity": {key: None}, "allocatable": {key: None}}


def test_of_a_node_without_anything_of_ours_nothing_is_taken() -> None:
    assert withdrawn({"metadata": {"labels": {"a": "b"}}, "status": {"capacity": {"cpu": "4"}}}) == ({}, {})


def uninstall(api: FakeApiServer, report: list[str]) -> Uninstall:
    return Uninstall(api.client, "redbox-system", (), JobsPolicy.KEEP, 1.0, report.append)


LONG = ResourcePath(SLURM_JOBS, "long", "alice")


def left() -> dict[str, Any]:
    conditions = [{"type": kind, "status": "True", "reason": kind} for kind in ("Submitted", "Synced")]
    made = job(phase="Running", jobID="42", conditions=conditions)
    made["metadata"] |= {"uid": "0aa6-11"}
    return made | {"kind": SLURM_JOBS}


async def test_a_job_that_is_left_has_its_whole_status_from_one_owner() -> None:
    """The operator of a new installation could not withdraw what another field manager has said."""
    api, report = FakeApiServer(), list[str]()
    api.put(LONG, left())
    await uninstall(api, report)._mark_stale(left())
    ((verb, where),) = api.requests
    assert (verb, where) == ("status", LONG)
    status = api.objects[LONG]["status"]
    assert (status["phase"], status["jobID"]) == ("Running", "42")
    assert [item["type"] for item in status["conditions"]] == ["Submitted", "Synced"]
    assert (status["conditions"][1]["status"], status["conditions"][1]["reason"]) == ("False", "Uninstalled")


async def test_a_status_that_is_refused_does_not_stop_an_uninstall() -> None:
    api, report = FakeApiServer(), list[str]()
    api.fail(ApiRefused(422, "spec: Required value"), verb="status")
    await uninstall(api, report)._mark_stale(left())
    assert report == ["its status is not marked as stale: spec: Required value"]


async def test_a_lease_is_over_when_free_or_not_renewed_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    holding = LeaseObservation()
    held = {"spec": {"holderIdentity": "pod", "renewTime": "1", "leaseDurationSeconds": 30}}
    assert not holding.is_free(held)
    now = 129.0
    assert not holding.is_free(held)
    renewed = {"spec": held["spec"] | {"renewTime": "2"}}
    now = 131.0
    assert not holding.is_free(renewed)
    now = 162.0
    assert holding.is_free(renewed)
    assert LeaseObservation().is_free({"spec": {"holderIdentity": ""}})
    assert LeaseObservation().is_free(None)


def crd(*names: str, stored: tuple[str, ...] = ()) -> dict[str, Any]:
    versions = [{"name": name, "served": True, "storage": name == names[0]} for name in names]
    return {"spec": {"versions": versions}, "status": {"storedVersions": list(stored)}}


def test_a_version_that_holds_objects_is_kept_and_stores_no_more() -> None:
    made, kept = with_stored_versions(crd("v1"), crd("v1alpha1", "v1alpha0", stored=("v1alpha1",)))
    assert [(item["name"], item["storage"]) for item in made["spec"]["versions"]] == [
        ("v1", True),
        ("v1alpha1", False),
    ]
    assert kept == ["v1alpha1"]


def test_a_version_that_holds_nothing_goes() -> None:
    made, kept = with_stored_versions(crd("v1"), crd("v1", "v1alpha0", stored=("v1",)))
    assert [item["name"] for item in made["spec"]["versions"]] == ["v1"]
    assert kept == []
