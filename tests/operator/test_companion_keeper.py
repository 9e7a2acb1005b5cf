"""What a companion is made of, and what it waits for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redbox_api.models import Phase
from redbox_kube.objects import ApiRefused, Where
from tests.operator.making import slurm_cluster
from tests.operator.reconciler_stand import Stand

SOURCE = {"configMapKeyRef": {"name": "scripts", "key": "run.sh"}}
SCRIPTS = Where("ConfigMap", "scripts", "farm")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


async def test_a_script_that_is_missing_is_said_and_the_job_goes_on_once_it_is_there(stand: Stand) -> None:
    await stand.apply(batch=None, batchFrom=SOURCE)
    assert stand.conditions["Submitted"] == ("False", "ScriptMissing")
    assert "no ConfigMap scripts" in stand.status["message"]
    stand.api.put(SCRIPTS, {"metadata": {"name": "scripts", "namespace": "farm"}, "data": {"other": "x"}})
    await stand.look()
    assert "no key run.sh in ConfigMap scripts" in stand.status["message"]
    assert stand.pod_names == []
    stand.api.put(SCRIPTS, {"metadata": {"name": "scripts", "namespace": "farm"}, "data": {"run.sh": "x"}})
    await stand.look()
    assert stand.pod_names == ["cow-job"]


# ---------------------------------------------------------------------------- pods beside a virtual companion

SECRET = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}]
CLAIM = {"from": ["out/*"], "volume": {"persistentVolumeClaim": {"claimName": "data"}}}
SUBMITTER = Where("Pod", "cow-submit", "farm")
COLLECTOR = Where("Pod", "cow-collect", "farm")


@pytest.fixture
def virtual(stand: Stand) -> Stand:
    stand.link.cluster = slurm_cluster(delivery="Virtual")
    return stand


async def test_a_submitter_that_is_lost_is_made_again_until_the_job_is_submitted(virtual: Stand) -> None:
    await virtual.apply(env=SECRET)
    assert virtual.pod_names == ["cow-job", "cow-submit"]
    del virtual.api.objects[SUBMITTER.path()]
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-submit"]
    assert virtual.status["companion"]["replaced"] == 1
    await virtual.at_redbox(Phase.PENDING)
    del virtual.api.objects[SUBMITTER.path()]
    await virtual.look()
    assert virtual.pod_names == ["cow-job"]


async def test_a_submitter_that_ended_without_a_word_is_made_again(virtual: Stand) -> None:
    await virtual.apply(env=SECRET)
    before = virtual.api.objects[SUBMITTER.path()]["metadata"]["uid"]
    await virtual.pod_ends("", "cow-submit")
    await virtual.look()
    assert virtual.api.objects[SUBMITTER.path()]["metadata"]["uid"] != before


async def test_a_submitter_that_never_works_is_given_up_and_that_is_said(virtual: Stand) -> None:
    await virtual.apply(env=SECRET)
    for _ in range(12):
        virtual.api.objects.pop(SUBMITTER.path(), None)
        virtual.now += timedelta(seconds=200)
        await virtual.look()
    assert virtual.conditions["Submitted"] == ("False", "CompanionFails")
    assert "pod cow-submit ended 10 times" in virtual.status["message"]


async def test_a_refused_job_has_no_second_submitter(virtual: Stand) -> None:
    await virtual.apply(env=SECRET)
    await virtual.pod_ends('{"refused": "no such partition"}', "cow-submit")
    assert virtual.status["reason"] == "Refused"
    del virtual.api.objects[SUBMITTER.path()]
    await virtual.look()
    assert virtual.pod_names == ["cow-job"]


async def test_a_collector_that_is_lost_is_made_again_until_there_are_results(virtual: Stand) -> None:
    await virtual.apply(results=CLAIM)
    await virtual.at_redbox(Phase.SUCCEEDED)
    assert virtual.pod_names == ["cow-job", "cow-collect"]
    del virtual.api.objects[COLLECTOR.path()]
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-collect"]
    results = '{"outcome": "Collected", "files": 1, "bytes": 4}'
    await virtual.pod_ends(f'{{"final": true, "results": {results}}}', "cow-collect")
    assert virtual.status["results"]["outcome"] == "Collected"
    del virtual.api.objects[COLLECTOR.path()]
    await virtual.look()
    assert virtual.pod_names == ["cow-job"]


async def test_a_submitter_that_kubernetes_refuses_is_said_and_made_later(virtual: Stand) -> None:
    virtual.api.refuses = "cow-submit"
    virtual.api.refusal = ApiRefused(403, "exceeded quota: pods")
    await virtual.apply(env=SECRET)
    await virtual.look()
    assert virtual.conditions["Submitted"] == ("False", "QuotaExceeded")
    virtual.api.refusal = None
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-submit"]
    assert virtual.conditions["Submitted"] == ("False", "Waiting")


async def test_a_collector_that_kubernetes_refuses_does_not_delay_the_jobs_end(virtual: Stand) -> None:
    await virtual.apply(results=CLAIM)
    virtual.api.refuses = "cow-collect"
    virtual.api.refusal = ApiRefused(403, "exceeded quota: pods")
    await virtual.at_redbox(Phase.SUCCEEDED)
    assert (virtual.status["phase"], virtual.pod_names) == ("Succeeded", ["cow-job"])
    assert await virtual.look() is not None
    virtual.api.refusal = None
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-collect"]
