"""What the reconciler does about one SlurmJob, against an API server and a red-box that only remember."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from redbox_api.errors import NoSuchJob
from redbox_api.models import Job, OwnerRef, Phase, Problem
from redbox_kube.objects import ApiRefused, Object, Objects, Where
from redbox_kube.slurm_cluster import SlurmCluster
from redbox_operator import ending
from redbox_operator import reconciler as reconciling
from redbox_operator.companions import companion_of
from redbox_operator.kinds import Place, SlurmJob
from redbox_operator.known import Known
from redbox_operator.known_names import ANNOTATION_ABANDON, FINALIZER
from redbox_operator.metrics import Metrics
from redbox_operator.reconciler import Reconciler
from redbox_operator.redbox_link import Away, RedboxLink, RowKey
from redbox_operator.writing import Writer, where_is
from tests.operator.making import slurm_cluster, slurm_job

IMAGE = "registry.example/redbox-companion:1"
CLUSTER = slurm_cluster()

NO_SUCH_JOB = Problem(type="t", title="There is no such thing", status=404, detail="no such job")
DELETED: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class ApiServer:
    """Keeps objects by their path, and counts versions."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.events: list[Object] = []
        self.refusal: ApiRefused | None = None
        self.writes = 0
        self._version = 10

    def put(self, where: Where, body: Object) -> Object:
        self._version += 1
        metadata = {"uid": f"uid-{self._version}", **body["metadata"], "resourceVersion": str(self._version)}
        self.objects[where.path()] = {**body, "metadata": metadata}
        return self.objects[where.path()]

    async def create(self, where: Where, body: Object) -> Object | None:
        if where.kind == "Event":
            self.events.append(body)
            return body
        if self.refusal and where.kind == "Pod":
            raise self.refusal
        name = body["metadata"]["name"]
        place = Where(where.kind, name, body["metadata"]["namespace"])
        if place.path() in self.objects:
            return None
        self.writes += 1
        return self.put(place, body)

    async def get(self, where: Where) -> Object | None:
        return self.objects.get(where.path())

    async def delete(self, where: Where, *, uid: str = "", grace_s: int | None = None) -> None:
        del grace_s
        there = self.objects.get(where.path())
        if there and there["metadata"]["uid"] == uid:
            del self.objects[where.path()]

    async def apply_status(self, where: Where, status: Object, *, uid: str = "") -> Object:
        there = self.objects[where.path()]
        assert uid == there["metadata"]["uid"]
        self.writes += 1
        return self.put(where, {**there, "status": status})

    async def set_finalizers(
        self, where: Where, finalizers: list[str], *, resource_version: str
    ) -> Object | None:
        there = self.objects.get(where.path())
        if there is None or there["metadata"]["resourceVersion"] != resource_version:
            return None
        self.writes += 1
        metadata = {**there["metadata"], "finalizers": finalizers}
        return self.put(where, {**there, "metadata": metadata})

    def pods(self) -> list[Object]:
        return [body for path, body in self.objects.items() if "/pods/" in path]


class Link:
    """A red-box with the jobs that it is given."""

    def __init__(self) -> None:
        self.cluster: SlurmCluster = CLUSTER
        self.rows: dict[RowKey, Job] = {}
        self.done: list[str] = []
        self.synced = True
        self.away = False

    def row(self, wanted: RowKey) -> Job | None:
        return self.rows.get(wanted)

    async def look(self, wanted: RowKey) -> Job | None:
        return self.rows.get(wanted)

    def presume_absent(self, new: RowKey) -> None:
        del new

    def forget(self, done: RowKey) -> None:
        self.rows.pop(done, None)

    def lag_of(self, told: RowKey) -> float | None:
        del told
        return 0.1

    async def cancel(self, wanted: RowKey, *, all_attempts: bool) -> list[Job]:
        if self.away:
            raise Away("no route")
        self.done.append(
            f"cancel {wanted.namespace}/{wanted.account} {'all' if all_attempts else wanted.attempt}"
        )
        of = [row for key, row in self.rows.items() if key.key == wanted.key]
        if not of:
            raise NoSuchJob(NO_SUCH_JOB)
        return of

    async def act(self, wanted: RowKey, act: str) -> None:
        self.done.append(f"{act} {wanted.attempt}")


class Stand:
    """A reconciler, and one SlurmJob that it looks at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = ApiServer()
        self.link = Link()
        self.links: dict[str, Any] = {"hpc1": self.link}
        self.now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
        for module in (reconciling, ending):
            monkeypatch.setattr(module, "now", lambda: self.now)
        self.known = Known()
        self.start()

    def start(self) -> None:
        """As after a restart: nothing is known but what is told anew."""
        metrics = Metrics()
        self.known = Known()
        links = cast("dict[str, RedboxLink]", self.links)
        writer = Writer(cast("Objects", self.api), metrics)
        self.reconciler = Reconciler(writer, self.known, links, IMAGE, metrics)

    async def apply(self, *, finalizers: tuple[str, ...] = (FINALIZER,), **spec: Any) -> None:
        """Have the SlurmJob with this spec, and look at it."""
        job = slurm_job(**spec)
        body = {
            "metadata": {
                **job.metadata,
                "finalizers": list(finalizers),
                "creationTimestamp": "2026-11-21T12:00:00Z",
            },
            "spec": job.spec.model_dump(by_alias=True, exclude_defaults=True),
        }
        self.api.put(self.where, body)
        await self.look()

    async def change(self, *, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
        there = self.api.objects[self.where.path()]
        changed = {**there, "metadata": {**there["metadata"], **metadata}}
        changed["spec"] = {**there["spec"], **(spec or {})}
        self.api.put(self.where, changed)
        await self.look()

    async def look(self) -> float | None:
        """What is there is told by the watch; then one look."""
        there = self.api.objects.get(self.where.path())
        if there is not None:
            self.reconciler.job_seen(SlurmJob.model_validate(there))
        for pod in list(self.known.companions.values()):
            if Where("Pod", pod.name, pod.namespace).path() not in self.api.objects:
                self.reconciler.companion_gone(pod)
        for body in self.api.pods():
            if body["metadata"].get("labels"):
                self.reconciler.companion_seen(companion_of(body))
        return await self.reconciler.reconcile(self.place)

    async def at_redbox(
        self, phase: Phase, *, attempt: int = 1, namespace: str = "farm", **facts: Any
    ) -> None:
        """Red-box says so."""
        owner = OwnerRef(cluster="c", namespace=namespace, account="default")
        facts = {"job_id": str(6 + attempt), "state": phase.upper(), **facts}
        row = Job(key="0aa6-11", attempt=attempt, owner=owner, user="alice", phase=phase, **facts)
        self.link.rows[RowKey("0aa6-11", attempt, namespace, "default")] = row
        await self.look()

    async def pod_ends(self, message: str, name: str = "cow-job") -> None:
        where = Where("Pod", name, "farm")
        state = {"terminated": {"exitCode": 1, "message": message}}
        status = {"phase": "Failed", "containerStatuses": [{"state": state}]}
        self.api.put(where, {**self.api.objects[where.path()], "status": status})
        await self.look()

    @property
    def place(self) -> Place:
        return slurm_job().place

    @property
    def where(self) -> Where:
        return where_is(self.place)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.api.objects[self.where.path()].get("status", {}))

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {one["type"]: (one["status"], one["reason"]) for one in self.status["conditions"]}

    @property
    def finalizers(self) -> list[str]:
        return list(self.api.objects[self.where.path()]["metadata"]["finalizers"])

    @property
    def pod_names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.api.pods()]

    def told(self) -> list[str]:
        return [event["reason"] for event in self.api.events]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


# ---------------------------------------------------------------------------------------------- beginning


async def test_the_finalizer_comes_before_anything_is_made(stand: Stand) -> None:
    stand.api.refusal = ApiRefused(403, "exceeded quota")
    await stand.apply(finalizers=())
    assert stand.finalizers == [FINALIZER]
    assert stand.pod_names == []


async def test_a_companion_is_made_and_its_uid_and_request_are_written(stand: Stand) -> None:
    await stand.apply()
    (pod,) = stand.api.pods()
    recorded = stand.status["companion"]
    assert (recorded["name"], recorded["uid"], recorded["attempt"]) == ("cow-job", pod["metadata"]["uid"], 1)
    assert recorded["request"].startswith("sha256:")


async def test_a_look_at_what_has_not_changed_writes_nothing(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    writes = stand.api.writes
    for _ in range(3):
        await stand.look()
    stand.start()
    await stand.look()
    assert stand.api.writes == writes


async def test_what_red_box_says_becomes_the_status_and_an_event(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    assert (stand.status["phase"], stand.status["jobID"]) == ("Running", "7")
    assert stand.told() == ["Submitted", "Running"]


async def test_a_row_of_another_owner_with_the_same_key_is_not_believed(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED, namespace="elsewhere")
    assert stand.status["phase"] == "Pending"


# ---------------------------------------------------------------------------------------------- companions


async def test_a_pod_of_that_name_that_is_not_ours_is_neither_adopted_nor_deleted(stand: Stand) -> None:
    stand.api.put(Where("Pod", "cow-job", "farm"), {"metadata": {"name": "cow-job", "namespace": "farm"}})
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "NameTaken")
    assert "companion" not in stand.status
    assert stand.pod_names == ["cow-job"]


async def test_a_pod_that_only_says_it_is_ours_is_not_believed_but_made_anew(stand: Stand) -> None:
    await stand.apply()
    forged = stand.api.pods()[0]
    stand.api.put(
        Where("Pod", "cow-job", "farm"), {**forged, "metadata": {**forged["metadata"], "uid": "forged"}}
    )
    await stand.pod_ends('{"refused": "forged"}')
    assert stand.status["phase"] == "Pending"
    await stand.look()
    stand.now += timedelta(seconds=5)
    await stand.look()
    assert [pod["metadata"]["uid"] for pod in stand.api.pods()] == [stand.status["companion"]["uid"]]
    assert stand.status["companion"]["uid"] != "forged"


async def test_a_companion_that_was_made_just_before_a_crash_is_made_anew(stand: Stand) -> None:
    await stand.apply()
    there = stand.api.objects[stand.where.path()]
    stand.api.put(stand.where, {key: value for key, value in there.items() if key != "status"})
    orphan = stand.api.pods()[0]["metadata"]["uid"]
    stand.start()
    await stand.look()
    await stand.look()
    (pod,) = stand.api.pods()
    assert pod["metadata"]["uid"] == stand.status["companion"]["uid"] != orphan


async def test_a_config_map_that_holds_another_request_is_not_ours(stand: Stand) -> None:
    body = {"metadata": {"name": "cow-job", "namespace": "farm"}, "data": {"request.json": "{}"}}
    stand.api.put(Where("ConfigMap", "cow-job", "farm"), body)
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "NameTaken")
    assert stand.pod_names == []


async def test_what_a_deleted_slurmjob_of_that_name_left_is_cleared_away(stand: Stand) -> None:
    gone = {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmJob", "name": "cow", "uid": "before"}
    for kind in ("Pod", "ConfigMap"):
        metadata = {
            "name": "cow-job",
            "namespace": "farm",
            "uid": f"old-{kind}",
            "ownerReferences": [{**gone, "controller": True}],
        }
        left = {"metadata": metadata, "data": {"request.json": "{}"}}
        stand.api.put(Where(kind, "cow-job", "farm"), left)
    await stand.apply()
    await stand.look()
    (pod,) = stand.api.pods()
    assert pod["metadata"]["uid"] == stand.status["companion"]["uid"] != "old-Pod"


async def test_a_lost_companion_is_made_again_from_the_same_request(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    request = stand.status["companion"]["request"]
    del stand.api.objects[Where("Pod", "cow-job", "farm").path()]
    await stand.look()
    assert stand.pod_names == ["cow-job"]
    assert stand.status["companion"]["request"] == request
    assert stand.status["companion"]["replaced"] == 1


async def test_a_companion_that_ended_without_a_last_word_is_made_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    first = stand.status["companion"]["uid"]
    await stand.pod_ends("")
    await stand.look()
    assert stand.status["companion"]["uid"] != first
    assert stand.status["phase"] == "Succeeded"


async def test_a_companion_that_said_its_last_word_is_never_made_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    await stand.pod_ends('{"final": true, "logs": "complete"}')
    assert stand.status["companion"]["done"] is True
    del stand.api.objects[Where("Pod", "cow-job", "farm").path()]
    await stand.look()
    stand.start()
    await stand.look()
    assert stand.pod_names == []


async def test_a_companion_that_keeps_failing_ends_in_a_condition(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    for _ in range(11):
        del stand.api.objects[Where("Pod", "cow-job", "farm").path()]
        stand.now += timedelta(seconds=300)
        await stand.look()
    assert stand.pod_names == []
    assert stand.conditions["Synced"] == ("False", "CompanionFails")
    assert stand.status["phase"] == "Running"


async def test_a_refusal_of_kubernetes_is_told_with_its_cure_and_tried_again(stand: Stand) -> None:
    stand.api.refusal = ApiRefused(403, 'pods "cow-job" is forbidden: exceeded quota: q')
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "QuotaExceeded")
    assert stand.told() == ["QuotaExceeded"]
    assert await stand.look() is not None
    stand.api.refusal = None
    await stand.look()
    assert stand.pod_names == ["cow-job"]


async def test_nothing_is_tried_for_ever(stand: Stand) -> None:
    stand.api.refusal = ApiRefused(403, 'pods "cow-job" is forbidden: exceeded quota: q')
    await stand.apply()
    waited = 0.0
    for _ in range(200):
        pause = await stand.look()
        if pause is None:
            break
        waited += pause
    assert stand.conditions["Failed"] == ("True", "Failed")
    assert 3000 < waited < 4500


async def test_in_a_namespace_that_is_going_nothing_is_made_or_said(stand: Stand) -> None:
    going = "forbidden: unable to create new content in namespace farm because it is being terminated"
    stand.api.refusal = ApiRefused(403, going)
    await stand.apply()
    assert stand.status == {}
    assert stand.told() == []


# ---------------------------------------------------------------------------------------------- attempts


async def test_a_failure_is_followed_by_a_new_attempt_with_its_own_companion(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.FAILED)
    assert (stand.status["phase"], stand.status["reason"]) == ("Pending", "Retrying")
    assert await stand.look() == 10.0
    stand.now += timedelta(seconds=10)
    await stand.look()
    assert stand.pod_names == ["cow-job", "cow-job-2"]
    assert (stand.status["attempts"], stand.status["companion"]["attempt"]) == (2, 2)
    await stand.at_redbox(Phase.FAILED, attempt=2)
    assert (stand.status["phase"], stand.conditions["Failed"]) == ("Failed", ("True", "Failed"))


async def test_a_restart_between_two_attempts_goes_on_with_the_second(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.FAILED)
    stand.start()
    stand.link.rows.clear()
    stand.now += timedelta(seconds=10)
    await stand.look()
    assert stand.status["attempts"] == 2


async def test_suspending_holds_a_job_that_waits_and_resuming_releases_it(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.PENDING, reason="Resources")
    await stand.change(spec={"suspend": True})
    assert stand.link.done == ["hold 1"]
    await stand.at_redbox(Phase.PENDING, reason="JobHeldUser")
    assert stand.status["phase"] == "Suspended"
    assert stand.link.done == ["hold 1"]
    await stand.change(spec={"suspend": False})
    assert stand.link.done == ["hold 1", "release 1"]
    await stand.at_redbox(Phase.PENDING, reason="Resources")
    assert (stand.status["phase"], stand.conditions["Held"]) == ("Submitted", ("False", "Released"))


async def test_a_job_that_its_user_holds_in_slurm_is_not_released(stand: Stand) -> None:
    await stand.apply(hold=True)
    await stand.change(spec={"hold": False})
    await stand.at_redbox(Phase.PENDING, reason="Resources")
    await stand.at_redbox(Phase.PENDING, reason="JobHeldUser")
    assert stand.link.done == []


async def test_suspending_cancels_a_job_that_runs_and_resuming_starts_it_anew(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(spec={"suspend": True})
    assert stand.link.done == ["cancel farm/default 1"]
    await stand.at_redbox(Phase.CANCELLED)
    assert (stand.status["phase"], stand.status["reason"]) == ("Suspended", "Suspended")
    stand.start()
    await stand.change(spec={"suspend": False})
    assert (stand.status["phase"], stand.status["attempts"], stand.status["resumed"]) == ("Pending", 2, 1)


# ---------------------------------------------------------------------------------------------- the end


async def test_a_deleted_slurmjob_stays_until_slurm_says_that_its_job_is_final(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(**DELETED)
    assert stand.link.done == ["cancel farm/default all"]
    assert stand.finalizers == [FINALIZER]
    assert "waits for Slurm to end its job: 7" in stand.status["message"]
    await stand.at_redbox(Phase.CANCELLED)
    assert stand.finalizers == []


async def test_a_slurmjob_that_never_had_a_job_goes_at_once(stand: Stand) -> None:
    await stand.apply()
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_with_red_box_away_it_waits_and_says_for_what(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.away = True
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "is away" in stand.status["message"]
    assert stand.told()[-1] == "Cancelling"
    stand.link.away = False
    await stand.at_redbox(Phase.CANCELLED)
    assert stand.finalizers == []


async def test_one_that_has_ended_does_not_wait_for_red_box(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    stand.link.away = True
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_an_abandoned_slurmjob_waits_for_nothing_and_that_is_told(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.away = True
    await stand.change(annotations={ANNOTATION_ABANDON: "true"}, **DELETED)
    assert stand.finalizers == []
    assert stand.told()[-1] == "Abandoned"


async def test_a_slurmcluster_can_let_all_its_jobs_be_abandoned(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.away = True
    spec = CLUSTER.spec.model_copy(update={"abandon_jobs": True})
    stand.link.cluster = CLUSTER.model_copy(update={"spec": spec})
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_a_deleted_slurmjob_waits_for_a_slurmcluster_that_is_gone_and_says_so(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.links.clear()
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "SlurmCluster hpc1 is gone" in stand.status["message"]


async def test_a_slurmjob_of_a_slurmcluster_that_never_was_can_be_deleted(stand: Stand) -> None:
    stand.links.clear()
    await stand.apply()
    assert stand.conditions["Submitted"] == ("False", "NoSuchCluster")
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_with_a_deletion_nothing_is_made(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(**DELETED)
    del stand.api.objects[Where("Pod", "cow-job", "farm").path()]
    await stand.look()
    assert stand.pod_names == []


async def test_a_slurmjob_whose_time_is_over_deletes_itself_once_its_log_was_read(stand: Stand) -> None:
    await stand.apply(ttlSecondsAfterFinished=60)
    await stand.at_redbox(Phase.SUCCEEDED)
    stand.now += timedelta(seconds=61)
    await stand.look()
    assert stand.where.path() in stand.api.objects
    await stand.pod_ends('{"final": true, "logs": "complete"}')
    assert stand.where.path() not in stand.api.objects


async def test_one_whose_time_is_not_over_is_looked_at_again_in_time(stand: Stand) -> None:
    await stand.apply(ttlSecondsAfterFinished=60)
    await stand.at_redbox(Phase.SUCCEEDED)
    assert await stand.look() == 60.0


# ---------------------------------------------------------------------------------------------- red-box away


async def test_nothing_is_written_of_a_job_before_red_box_has_told_what_it_knows(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.start()
    stand.link.rows.clear()
    stand.link.synced = False
    writes = stand.api.writes
    await stand.look()
    assert stand.api.writes == writes
    assert stand.status["phase"] == "Running"
