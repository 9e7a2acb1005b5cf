"""What is kept of SlurmJobs, and what is news."""

from __future__ import annotations

import random
from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_clusters.names import WLM_JOBS
from redbox_operator import object_cache
from redbox_operator.api.constants import FINALIZER
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.sylabs import translated
from redbox_operator.companion_pods.plan import CompanionPod, companion_of
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmjob.status import status_of
from tests.operator.factories import job_row, slurm_job, status_inputs

RESULTS = {"from": ["out/*"], "volume": {"persistentVolumeClaim": {"claimName": "data"}}}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "container": {"container": {"image": "docker://alpine", "command": ["true"]}},
    "from elsewhere": {"batchFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
    "environment": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    "results": {"results": RESULTS, "nodeSelector": {"a": "b"}},
    "chain": {"dependsOn": [{"name": "first", "type": "afterany"}], "backoffLimit": 3, "hold": True},
}


def shown(version: str = "5", **spec: Any) -> SlurmJob:
    made = slurm_job(**spec)
    metadata = {**made.metadata, "resourceVersion": version, "managedFields": [{"manager": "x"}]}
    status = status_of(status_inputs(job_row(Phase.RUNNING)))
    return made.model_copy(update={"metadata": metadata, "status": status})


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_a_slurmjob_comes_back_as_it_was(spec: dict[str, Any]) -> None:
    cached, item = ObjectCache(), shown(**spec)
    cached.update_job(item)
    for back in (cached.get(item.ref), cached.jobs[item.ref].unpacked()):
        assert back is not None
        assert back.spec == item.spec
        assert back.status == item.status
        assert back.uid == item.uid
        assert "managedFields" not in back.metadata


def test_only_the_newest_small_ones_are_kept_as_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "MODELS", 2)
    cached = ObjectCache()
    large = shown(batch="#!/bin/sh\n" + "x" * object_cache.LARGEST_MODEL)
    jobs = [
        made.model_copy(update={"metadata": {**made.metadata, "name": name}})
        for name, made in (("a", shown()), ("b", shown()), ("c", shown()), ("large", large))
    ]
    for item in jobs:
        cached.update_job(item)
    is_model = [cached.get(item.ref) is cached.get(item.ref) for item in jobs]
    assert is_model == [False, True, True, False]
    assert [cached.get(item.ref) == cached.jobs[item.ref].unpacked() for item in jobs] == [True] * 4


def test_what_large_ones_hold_is_bounded() -> None:
    """Their authors choose scripts, values and annotations that no compression makes shorter."""
    cached, noise = ObjectCache(), random.Random(4)
    env = [{"name": f"V{number}", "value": noise.randbytes(3000).hex()} for number in range(100)]
    item = shown(
        batch=f"#!/bin/sh\n# {noise.randbytes(90_000).hex()}",
        env=env,
        options=[noise.randbytes(400).hex() for _ in range(100)],
        serviceAccountName="robot",
        backoffLimit=3,
    )
    annotations = {f"redbox.dev/{number}": "x" * 1000 for number in range(200)}
    annotations |= {"redbox.dev/requeue": noise.randbytes(100_000).hex(), "redbox.dev/cancel": "true"}
    item.metadata["annotations"] = annotations
    item.metadata["finalizers"] = [f"example.org/{noise.randbytes(20).hex()}" for _ in range(1000)] + [
        FINALIZER
    ]
    cached.update_job(item)
    assert len(cached.jobs[item.ref].packed) < 4096
    back = cached.get(item.ref)
    assert back is not None
    assert not back.is_whole
    assert (back.spec.service_account_name, back.spec.backoff_limit) == ("robot", 3)
    assert back.annotations == {"redbox.dev/cancel": "true"}
    assert back.finalizers == [FINALIZER]
    assert back.status == item.status


def test_a_newer_version_takes_the_place_of_the_model_and_an_end_removes_it() -> None:
    cached, item = ObjectCache(), shown("5")
    cached.update_job(item)
    cached.update_job(shown("6"))
    newest = cached.get(item.ref)
    assert newest is not None
    assert newest.metadata["resourceVersion"] == "6"
    cached.remove_job(item.ref, item.uid)
    assert cached.get(item.ref) is None


def test_one_of_an_old_kind_comes_back_as_what_it_was_translated_into() -> None:
    raw = {
        "metadata": {"name": "old", "namespace": "farm", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "image": "library://cow",
            "options": {"cleanEnv": True},
            "results": {"from": "a", "mount": {"name": "d", "hostPath": {"path": "/x"}}},
        },
    }
    cached, item = ObjectCache(), translated(WLM_JOBS, raw)
    cached.update_job(item)
    back = cached.jobs[item.ref].unpacked()
    assert (back.spec, back.resource) == (item.spec, WLM_JOBS)


def test_an_older_sight_changes_nothing() -> None:
    cached = ObjectCache()
    assert cached.update_job(shown("10"))
    assert not cached.update_job(shown("9"))
    assert not cached.update_job(shown("10"))
    assert cached.update_job(shown("11"))


def test_an_older_sight_of_another_object_of_that_name_changes_nothing() -> None:
    """As a watch may show the end of the one before while the new one is there already."""
    cached, new = ObjectCache(), shown("10")
    before = new.model_copy(update={"metadata": {**new.metadata, "uid": "before", "resourceVersion": "9"}})
    assert cached.update_job(new)
    assert not cached.is_newer(before.ref, "9")
    assert not cached.update_job(before)
    assert cached.ref_of(new.uid) == new.ref
    assert cached.ref_of("before") is None


def test_an_older_sight_of_a_pod_that_was_replaced_changes_nothing() -> None:
    def pod(uid: str, version: str) -> CompanionPod:
        metadata = {"namespace": "farm", "name": "cow-job", "uid": uid, "resourceVersion": version}
        return companion_of({"metadata": metadata})

    cached = ObjectCache()
    assert cached.update_companion(pod("new", "10"))
    assert not cached.update_companion(pod("before", "9"))
    assert cached.companions["farm", "cow-job"].uid == "new"
    assert cached.update_companion(pod("newest", "11"))


def test_what_was_written_is_cached_and_its_version_kept_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_cache, "OWN_WRITES", 2)
    cached, metadata = ObjectCache(), {"namespace": "farm", "name": "cow-job", "uid": "pod"}
    cached.update_job(shown("9"))
    cached.job_written(shown("10"))
    cached.companion_written(companion_of({"metadata": {**metadata, "resourceVersion": "11"}}))
    assert cached.jobs[shown().ref].version == "10"
    assert ("farm", "cow-job") in cached.companions
    assert [cached.is_own_write(version) for version in ("9", "10", "11")] == [False, True, True]
    cached.job_written(shown("12"))
    assert [cached.is_own_write(version) for version in ("10", "11", "12")] == [False, True, True]


def test_who_waits_for_whom_is_known_until_it_is_gone() -> None:
    cached, second = ObjectCache(), shown(dependsOn=[{"name": "first"}])
    cached.update_job(second)
    first = second.ref._replace(name="first")
    assert cached.dependents_of(first) == {second.ref}
    cached.remove_job(second.ref, "another uid")
    assert cached.dependents_of(first) == {second.ref}
    cached.remove_job(second.ref, second.uid)
    assert cached.dependents_of(first) == set()
    assert cached.ref_of(second.uid) is None
