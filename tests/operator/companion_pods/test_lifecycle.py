"""What a companion is made of, and what it waits for."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_operator.companion_pods import builder
from tests.operator.factories import partition, slurm_cluster
from tests.operator.harness import Stand

SOURCE = {"configMapKeyRef": {"name": "scripts", "key": "run.sh"}}
SCRIPTS = ResourcePath(kinds.CONFIG_MAP, "scripts", "farm")


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


async def test_a_script_that_stays_away_is_looked_for_ever_more_seldom_and_never_given_up(
    stand: Stand,
) -> None:
    """A tenant may have thousands of such SlurmJobs."""
    await stand.apply(batch=None, batchFrom=SOURCE)
    pauses = []
    for _ in range(100):
        pauses.append(await stand.look() or 0.0)
        stand.now += timedelta(seconds=pauses[-1])
        stand.uptime_s += pauses[-1]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 5
    assert pauses[-1] == 60
    assert stand.conditions["Submitted"] == ("False", "ScriptMissing")


async def test_a_pod_that_does_not_go_is_named_and_deleted_ever_more_seldom(stand: Stand) -> None:
    """Somebody's finalizer keeps it; without the force a pod of a dead node would stay, too."""
    await stand.apply()
    where = ResourcePath(kinds.POD, "cow-job", "farm")
    body = stand.api.objects[where]
    going = {"deletionTimestamp": "2026-11-21T12:00:00Z", "finalizers": ["example.org/keeps"]}
    stand.api.put(where, {**body, "metadata": {**body["metadata"], **going}})
    pauses = []
    for _ in range(100):
        pauses.append(await stand.look() or 0.0)
        stand.now += timedelta(seconds=pauses[-1])
    assert pauses[1:] == sorted(pauses[1:])
    assert pauses[-1] == 60
    assert stand.conditions["Submitted"] == ("False", "PodNotDeleted")
    assert "pod cow-job was deleted" in stand.status["message"]
    stand.api.remove(where)
    await stand.look()
    assert stand.conditions["Submitted"] == ("False", "Waiting")
    assert stand.pod_names == ["cow-job"]


# ------------------------------------------------------------------------------- a SlurmCluster that changes

FROZEN = ResourcePath(kinds.CONFIG_MAP, "cow-job", "farm")
NEW_CA = base64.b64encode(b"-----BEGIN CERTIFICATE----- new").decode()


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.SUCCEEDED])
@pytest.mark.parametrize("changed", [{"endpoint": "https://standby.example:8443"}, {"caBundle": NEW_CA}])
async def test_a_companion_is_made_anew_where_red_box_moves_or_its_authority_changes(
    stand: Stand, changed: dict[str, str], phase: Phase
) -> None:
    await stand.apply()
    await stand.at_redbox(phase)
    (before,) = stand.api.of_kind("Pod")
    request = stand.api.objects[FROZEN]["data"]["request.json"]
    stand.link.cluster = slurm_cluster(**changed)
    await stand.look()
    await stand.look()
    (after,) = stand.api.of_kind("Pod")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert stand.status["companion"]["uid"] == after["metadata"]["uid"]
    environment = {item["name"]: item.get("value") for item in after["spec"]["containers"][0]["env"]}
    assert environment["REDBOX_ENDPOINT"] == stand.link.cluster.spec.endpoint
    frozen = stand.api.objects[FROZEN]["data"]
    assert frozen == {"request.json": request, "ca.crt": stand.link.cluster.spec.ca_bundle.decode()}


async def test_a_new_authority_changes_nothing_in_a_request_that_is_frozen(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an operator of another release would render it."""
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    request = stand.api.objects[FROZEN]["data"]["request.json"]
    monkeypatch.setattr(builder, "stored_request", lambda _: '{"rendered": "otherwise"}')
    stand.link.cluster = slurm_cluster(caBundle=NEW_CA)
    await stand.look()
    await stand.look()
    assert stand.api.objects[FROZEN]["data"]["request.json"] == request


async def test_a_companion_that_has_said_its_final_message_is_left_alone_then(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    await stand.pod_ends('{"final": true, "logs": "complete"}')
    (before,) = stand.api.of_kind("Pod")
    stand.link.cluster = slurm_cluster(caBundle=NEW_CA)
    await stand.look()
    assert stand.api.of_kind("Pod") == [before]


async def test_a_pod_on_a_virtual_node_reaches_nothing_and_stays(stand: Stand) -> None:
    stand.link.cluster = slurm_cluster(delivery="Virtual")
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    (before,) = stand.api.of_kind("Pod")
    stand.link.cluster = slurm_cluster(delivery="Virtual", caBundle=NEW_CA)
    await stand.look()
    assert stand.api.of_kind("Pod") == [before]


# ---------------------------------------------------------------------------- pods beside a virtual companion

SECRET = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}}]
CLAIM = {"from": ["out/*"], "volume": {"persistentVolumeClaim": {"claimName": "data"}}}
SUBMITTER = ResourcePath(kinds.POD, "cow-submit", "farm")
HELPER = ResourcePath(kinds.POD, "cow-helper", "farm")


@pytest.fixture
def virtual(stand: Stand) -> Stand:
    stand.link.cluster = slurm_cluster(delivery="Virtual")
    return stand


async def test_a_partition_that_is_not_there_is_said_before_any_pod_and_waited_for(virtual: Stand) -> None:
    virtual.link.partition_watch.partitions = [partition("debug")]
    await virtual.apply(partition="long")
    assert virtual.conditions["Submitted"] == ("False", "NoSuchPartition")
    assert (virtual.status["phase"], virtual.pod_names) == ("Pending", [])
    virtual.link.partition_watch.partitions.append(partition("long"))
    await virtual.look()
    assert virtual.pod_names == ["cow-job"]


async def test_a_submitter_that_is_lost_is_made_again_until_the_job_is_submitted(virtual: Stand) -> None:
    await virtual.apply(env=SECRET)
    assert virtual.pod_names == ["cow-job", "cow-submit"]
    del virtual.api.objects[SUBMITTER]
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-submit"]
    assert virtual.status["companion"]["replaced"] == 1
    await virtual.at_redbox(Phase.PENDING)
    del virtual.api.objects[SUBMITTER]
    await virtual.look()
    assert virtual.pod_names == ["cow-job"]


async def test_a_submitter_that_is_lost_while_slurm_has_not_confirmed_is_made_again(virtual: Stand) -> None:
    """What red-box is not sure of is submitted once more by a PUT alone."""
    await virtual.apply(env=SECRET)
    await virtual.at_redbox(Phase.SUBMITTING, job_id=None, state=None)
    del virtual.api.objects[SUBMITTER]
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-submit"]


async def test_a_submitter_that_ended_without_a_word_is_made_again(virtual: Stand) -> None:
    await virtual.apply(env=SECRET)
    before = virtual.api.objects[SUBMITTER]["metadata"]["uid"]
    await virtual.pod_ends("", "cow-submit")
    await virtual.look()
    assert virtual.api.objects[SUBMITTER]["metadata"]["uid"] != before


async def test_a_submitter_that_never_works_is_given_up_and_that_is_said(virtual: Stand) -> None:
    await virtual.apply(env=SECRET)
    for _ in range(12):
        virtual.api.objects.pop(SUBMITTER, None)
        virtual.now += timedelta(seconds=200)
        await virtual.look()
    assert virtual.conditions["Submitted"] == ("False", "CompanionFails")
    assert "pod cow-submit ended 10 times" in virtual.status["message"]


async def test_a_refused_job_has_no_second_submitter(virtual: Stand) -> None:
    await virtual.apply(env=SECRET)
    await virtual.pod_ends('{"refused": "no such partition"}', "cow-submit")
    assert virtual.status["reason"] == "Refused"
    del virtual.api.objects[SUBMITTER]
    await virtual.look()
    assert virtual.pod_names == ["cow-job"]


async def test_a_collector_that_is_lost_is_made_again_until_there_are_results(virtual: Stand) -> None:
    await virtual.apply(results=CLAIM)
    await virtual.at_redbox(Phase.SUCCEEDED)
    assert virtual.pod_names == ["cow-job", "cow-helper"]
    del virtual.api.objects[HELPER]
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-helper"]
    results = '{"outcome": "Collected", "files": 1, "bytes": 4}'
    await virtual.pod_ends(f'{{"final": true, "results": {results}}}', "cow-helper")
    assert virtual.status["results"]["outcome"] == "Collected"
    del virtual.api.objects[HELPER]
    await virtual.look()
    assert virtual.pod_names == ["cow-job"]


async def test_a_submitter_that_kubernetes_refuses_is_said_and_made_later(virtual: Stand) -> None:
    virtual.api.fail(ApiRefused(403, "exceeded quota: pods"), verb="create", name="cow-submit")
    await virtual.apply(env=SECRET)
    await virtual.look()
    assert virtual.conditions["Submitted"] == ("False", "QuotaExceeded")
    virtual.api.recover()
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-submit"]
    assert virtual.conditions["Submitted"] == ("False", "Waiting")


@pytest.mark.parametrize("refusal", [ApiRefused(403, "exceeded quota: pods"), ApiRefused(500, "a webhook")])
async def test_a_collector_that_kubernetes_refuses_does_not_delay_the_jobs_end(
    virtual: Stand, refusal: ApiRefused
) -> None:
    await virtual.apply(results=CLAIM)
    virtual.api.fail(refusal, verb="create", name="cow-helper")
    assert await virtual.at_redbox(Phase.SUCCEEDED) is not None  # nothing else may happen
    assert (virtual.status["phase"], virtual.pod_names) == ("Succeeded", ["cow-job"])
    virtual.api.recover()
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-helper"]


async def test_a_collector_is_replaced_when_red_box_has_another_authority(virtual: Stand) -> None:
    """It would ask the old one for ever, and nothing else happens to a SlurmJob that has ended."""
    await virtual.apply(results=CLAIM)
    await virtual.at_redbox(Phase.SUCCEEDED)
    await virtual.look()
    virtual.link.cluster = slurm_cluster(delivery="Virtual", caBundle=NEW_CA)
    virtual.reconciler.queue = WorkQueue()
    virtual.reconciler.wake_cluster("hpc1")
    assert len(virtual.reconciler.queue) == 1
    await virtual.look()
    assert "cow-helper" not in virtual.pod_names
    results = '{"outcome": "Collected", "files": 1, "bytes": 4}'
    await virtual.look()
    await virtual.pod_ends(f'{{"final": true, "results": {results}}}', "cow-helper")
    virtual.reconciler.queue = WorkQueue()
    virtual.reconciler.wake_cluster("hpc1")
    assert len(virtual.reconciler.queue) == 0


@pytest.mark.parametrize("spec", [{"results": CLAIM}, {"ports": [{"name": "http", "port": 8080}]}])
async def test_pods_beside_a_virtual_companion_trust_red_boxs_newest_authority(
    virtual: Stand, spec: dict[str, Any]
) -> None:
    """The companion on the virtual node is not made again when it changes, and its ConfigMap was not."""
    await virtual.apply(**spec)
    await virtual.at_redbox(Phase.RUNNING)
    request = virtual.api.objects[FROZEN]["data"]["request.json"]
    virtual.link.cluster = slurm_cluster(delivery="Virtual", caBundle=NEW_CA)
    await virtual.look()
    await virtual.look()
    if "results" in spec:
        await virtual.at_redbox(Phase.SUCCEEDED)
    assert len(virtual.pod_names) == 2
    assert virtual.api.objects[FROZEN]["data"] == {
        "request.json": request,
        "ca.crt": base64.b64decode(NEW_CA).decode(),
    }


# ------------------------------------------------------------------------------------------------------ ports

PORTS = [{"name": "http", "port": 8080}]


async def test_ports_have_a_pod_of_their_own_beside_a_virtual_companion(virtual: Stand) -> None:
    await virtual.apply(ports=PORTS)
    assert virtual.pod_names == ["cow-job", "cow-helper"]


async def test_a_pod_of_ports_that_is_lost_is_made_again_while_the_job_runs(virtual: Stand) -> None:
    await virtual.apply(ports=PORTS)
    await virtual.at_redbox(Phase.RUNNING)
    del virtual.api.objects[HELPER]
    virtual.cache.companions.pop(("farm", "cow-helper"), None)
    await virtual.look()
    assert virtual.pod_names == ["cow-job", "cow-helper"]


async def test_one_pod_serves_the_ports_and_collects_the_results(virtual: Stand) -> None:
    await virtual.apply(ports=PORTS, results=CLAIM)
    await virtual.at_redbox(Phase.RUNNING)
    helper = virtual.api.objects[HELPER]["spec"]["containers"][0]
    assert {item["name"] for item in helper["env"]} >= {"REDBOX_PORTS", "REDBOX_RESULTS"}
    await virtual.at_redbox(Phase.SUCCEEDED)
    assert virtual.pod_names == ["cow-job", "cow-helper"]
    del virtual.api.objects[HELPER]
    await virtual.look()
    again = virtual.api.objects[HELPER]["spec"]["containers"][0]  # of an ended job, which may be forgotten
    assert "REDBOX_PORTS" not in {item["name"] for item in again["env"]}
    results = '{"outcome": "Collected", "files": 1, "bytes": 4}'
    await virtual.pod_ends(f'{{"final": true, "results": {results}}}', "cow-helper")
    assert virtual.status["results"]["outcome"] == "Collected"


async def test_with_container_delivery_the_companion_serves_the_ports_itself(stand: Stand) -> None:
    await stand.apply(ports=PORTS)
    assert stand.pod_names == ["cow-job"]


# ------------------------------------------------------------------------------------ refusals of Kubernetes


async def test_a_slurmjob_that_is_made_again_is_retried_for_an_hour_of_its_own(stand: Stand) -> None:
    """Of `kubectl replace --force` the deletion may be shown after the new object, or never."""
    stand.api.fail(ApiRefused(403, "exceeded quota: pods"), verb="create", kind="Pod")
    await stand.apply()
    stand.uptime_s += 3600
    await stand.look()
    assert stand.status["phase"] == "Failed"
    body = stand.api.objects[stand.where]
    stand.api.put(stand.where, {**body, "metadata": {**body["metadata"], "uid": "0aa6-12"}, "status": {}})
    await stand.look()
    assert (stand.status["phase"], stand.status["reason"]) == ("Pending", "QuotaExceeded")


NOT_THERE = 'error looking up service account farm/bot: serviceaccount "bot" not found'
NO_RIGHT = (
    'User "system:serviceaccount:redbox-system:redbox-operator" cannot create resource "pods" in API group ""'
)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (f'pods "cow-job" is forbidden: {NOT_THERE}', "NoServiceAccount"),
        (f"pods is forbidden: {NO_RIGHT}", "PodRefused"),
    ],
)
async def test_a_refusal_has_its_own_cure(stand: Stand, message: str, reason: str) -> None:
    """The operator has a service account, too, which refusals of its rights name."""
    stand.api.fail(ApiRefused(403, message), verb="create", kind="Pod")
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", reason)
