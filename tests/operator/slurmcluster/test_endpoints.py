"""SlurmEndpoints: their audience, their ConfigMap, and how many a namespace may have."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from redbox.server.certificates import make_authority
from redbox_api.models import Cluster
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS
from redbox_clusters.slurm_endpoint import SLURM_ENDPOINTS, SlurmEndpoint, read_cluster
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.api.slurmcluster_status import (
    SlurmClusterStatus,
    cluster_status_of,
)
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster import cluster_status, reconciler
from redbox_operator.slurmcluster.cluster_status import STATUSES_AT_ONCE
from redbox_operator.slurmcluster.endpoint_places import MOST_OF_A_NAMESPACE
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmcluster.reconciler import OF_A_NAMESPACE, RETURNS_AT_ONCE, SlurmClusters
from redbox_operator.slurmcluster.registry import RedboxLinks
from tests.kube.fakes import FakeApiServer
from tests.operator.factories import NOON, cluster_facts, slurm_cluster, slurm_endpoint

CONFIG_MAP = ResourcePath(kinds.CONFIG_MAP, "mine-audience", "farm")
AUDIENCE = "redbox.dev/ns/farm/uid-of-mine"


def path_of(name: str) -> ResourcePath:
    return ResourcePath(SLURM_ENDPOINTS, name, "farm")


class Stage:
    """An operator, and SlurmEndpoints at its API server; nothing answers at their addresses."""

    def __init__(self) -> None:
        self.api = FakeApiServer()
        self.links = RedboxLinks()
        self.running: asyncio.Task[None] | None = None
        self.clusters = SlurmClusters(
            StatusWriter(self.api.client, OperatorMetrics().writes),
            ServiceAccountName("redbox-system", "redbox-operator"),
            ObjectCache(),
            self.links,
            wake_uid=print,
            wake_cluster=print,
        )

    def put(
        self,
        name: str = "mine",
        uid: str | None = None,
        created: str = "2026-11-21T12:00:00Z",
        **spec: object,
    ) -> None:
        given = {"endpoint": "https://127.0.0.1:1", "caBundle": base64.b64encode(authority()).decode()}
        metadata = {
            "name": name,
            "namespace": "farm",
            "uid": uid or f"uid-of-{name}",
            "creationTimestamp": created,
            "annotations": {"example.org/notes": "x" * 1000},
        }
        self.api.put(path_of(name), {"metadata": metadata, "spec": {**given, **spec}})

    async def look(self, name: str = "mine") -> None:
        self.clusters.updated(self.api.objects[path_of(name)])
        await self.clusters._reconcile(f"farm/{name}")

    def reachable(self, name: str = "mine") -> Object:
        conditions: list[Object] = self.api.objects[path_of(name)]["status"]["conditions"]
        return next(condition for condition in conditions if condition["type"] == "Reachable")

    @property
    def is_running(self) -> bool:
        return self.running is not None and not self.running.done()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while self.is_running and not holds():  # noqa: ASYNC110 (what is waited for sets no event)
                await asyncio.sleep(0.01)
        assert holds()


def authority() -> bytes:
    return make_authority("farm", datetime.now(UTC)).certificate


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    async with running(made):
        yield made


@asynccontextmanager
async def running(stage: Stage) -> AsyncIterator[None]:
    task = stage.running = asyncio.create_task(stage.clusters.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_the_audience_is_computed_and_published_before_the_red_box_answers(stage: Stage) -> None:
    """It could not answer earlier: its pod waits for the ConfigMap."""
    stage.put(audience="redbox.dev/hpc1/of-another-red-box", delivery="Virtual")
    await stage.look()
    assert stage.api.objects[path_of("mine")]["status"]["audience"] == AUDIENCE
    written = stage.api.objects[CONFIG_MAP]
    assert written["data"] == {"audience": AUDIENCE}
    assert [owner["uid"] for owner in written["metadata"]["ownerReferences"]] == ["uid-of-mine"]
    link = stage.links.get("farm/mine")
    assert link is not None
    assert (link.cluster.spec.audience, link.cluster.spec.delivery) == (AUDIENCE, "Container")
    assert "finalizers" not in stage.api.objects[path_of("mine")]["metadata"]


async def test_one_that_was_made_again_has_another_audience(stage: Stage) -> None:
    stage.put()
    await stage.look()
    stage.clusters.deleted("farm/mine")
    assert stage.links.get("farm/mine") is None
    stage.put(uid="second")
    await stage.look()
    assert stage.api.objects[CONFIG_MAP]["data"] == {"audience": "redbox.dev/ns/farm/second"}


async def test_a_strangers_configmap_is_left_alone_and_named(stage: Stage) -> None:
    stranger = {"metadata": {"name": "mine-audience", "namespace": "farm"}, "data": {"audience": "x"}}
    stage.api.put(CONFIG_MAP, stranger)
    stage.put()
    await stage.look()
    assert stage.reachable()["reason"] == "Misconfigured"
    assert "ConfigMap mine-audience exists" in stage.reachable()["message"]
    assert stage.api.objects[CONFIG_MAP]["data"] == {"audience": "x"}
    del stage.api.objects[CONFIG_MAP]
    await stage.look()
    assert stage.api.objects[CONFIG_MAP]["data"] == {"audience": AUDIENCE}
    assert stage.links.get("farm/mine") is not None


async def test_a_namespace_has_a_bounded_number_of_links_and_the_oldest_are_served(stage: Stage) -> None:
    names = [f"box-{number}" for number in range(MOST_OF_A_NAMESPACE + 1)]
    for age, name in enumerate(reversed(names)):  # the newest is shown first, as a list may
        stage.put(name, created=f"2026-11-21T12:00:{len(names) - age:02d}Z")
        await stage.look(name)
        assert {f"farm/{other}" for other in names[-age - 1 :]} == {*stage.links.names()}  # none is ever gone
    served = {f"farm/{name}" for name in names[:-1]}
    await stage.until(lambda: set(stage.links.by_name) == served)
    await stage.until(lambda: "delete one of them" in stage.reachable(names[-1])["message"])
    stage.clusters.deleted(f"farm/{names[0]}")
    assert stage.links.problem_of(f"farm/{names[-1]}").reason == "ClusterMisconfigured"
    await stage.until(lambda: stage.links.get(f"farm/{names[-1]}") is not None)
    link = stage.links.get(f"farm/{names[-1]}")
    assert link is not None
    assert link.cluster.spec.ca_bundle, "of one that waits it is not kept, and read again"


async def test_beyond_the_installations_number_the_oldest_are_served(stage: Stage) -> None:
    stage.clusters._places.most = 1
    stage.put("old", created="2026-11-21T12:00:00Z")
    stage.put("new", created="2026-11-21T12:00:01Z")
    for name in ("new", "old"):
        await stage.look(name)
    await stage.until(lambda: set(stage.links.by_name) == {"farm/old"})
    await stage.until(lambda: "operator.slurmEndpoints.most" in stage.reachable("new")["message"])


async def test_a_red_box_that_comes_and_goes_has_few_statuses_and_events_written(stage: Stage) -> None:
    stage.put(endpoint="https://a..b")
    await stage.look()
    link = stage.links.get("farm/mine")
    assert link is not None
    for turn in range(200):
        link._turn(None if turn % 2 else "it is away")
        await stage.clusters._reconcile("farm/mine")
    statuses = [request for request in stage.api.requests if request.verb == "status"]
    assert len(statuses) <= STATUSES_AT_ONCE + 1
    assert len(stage.api.events) <= STATUSES_AT_ONCE + 1


async def test_its_return_is_not_passed_on_each_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[str] = []
    monkeypatch.setattr(stage.clusters._endpoint_returned, "_call", woken.append)
    stage.put(endpoint="https://a..b")
    await stage.look()
    link = stage.links.get("farm/mine")
    assert link is not None
    for turn in range(200):
        link._turn(None if turn % 2 else "it is away")
    assert woken == ["farm/mine"] * RETURNS_AT_ONCE


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_address_of_the_operators_own_is_never_connected_to(stage: Stage, host: str) -> None:
    """Of a name it is judged when it is resolved."""
    connections: list[object] = []
    server = await asyncio.start_server(lambda *streams: connections.append(streams), "127.0.0.1", 0)
    stage.put(endpoint=f"https://{host}:{server.sockets[0].getsockname()[1]}")
    await stage.look()
    await stage.until(lambda: "farm/mine" in stage.links.by_name)
    link = stage.links.by_name["farm/mine"]
    await stage.until(lambda: link.reachable is False)
    server.close()
    assert "the operator does not connect to" in link.trouble
    assert "give the address of a Service of your namespace" in link.trouble
    assert connections == []


async def test_a_defect_that_a_red_box_finds_is_its_slurmendpoints_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is raised here ends the operator of all."""
    stage.put()
    await stage.look()

    async def defect(*_: object) -> None:
        raise TypeError("can't subtract offset-naive and offset-aware datetimes")

    monkeypatch.setattr("redbox_operator.slurmcluster.cluster_status.describe", defect)
    await stage.clusters._handle("farm/mine")


def test_a_time_without_a_zone_is_no_answer_of_red_box() -> None:
    """It cannot be compared with the current time."""
    given = {
        "name": "x",
        "workloadManager": "slurm",
        "version": "1",
        "redboxVersion": "1",
        "accounting": True,
    }
    with pytest.raises(ValidationError, match="timezone"):
        Cluster.model_validate({**given, "credentialsExpireAt": "2026-11-21T12:00:00"})


async def test_red_boxes_that_hang_hold_up_no_slurmcluster(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    describing: list[str] = []

    async def hang(link: RedboxLink) -> tuple[None, None]:
        describing.append(link.cluster.key)
        if link.cluster.namespace:
            await asyncio.Event().wait()
        return None, None

    monkeypatch.setattr(cluster_status, "describe", hang)
    for number in range(MOST_OF_A_NAMESPACE):
        stage.put(f"box-{number}")
        stage.clusters.updated(stage.api.objects[path_of(f"box-{number}")])
    await stage.until(lambda: len(describing) == OF_A_NAMESPACE)
    where = ResourcePath(SLURM_CLUSTERS, "hpc1")
    spec = stage.api.objects[path_of("box-0")]["spec"]
    stage.api.put(where, {"metadata": {"name": "hpc1"}, "spec": {**spec, "audience": "redbox.dev/hpc1/1"}})
    stage.clusters.updated(stage.api.objects[where])
    await stage.until(lambda: "hpc1" in describing)
    assert len(describing) - describing.count("hpc1") == OF_A_NAMESPACE


async def test_an_address_that_is_none_ends_no_operator(stage: Stage) -> None:
    """Each user of the namespace may write it; the operator serves all namespaces."""
    stage.put(endpoint="https://a..b")
    await stage.look()
    link = stage.links.get("farm/mine")
    assert link is not None
    await stage.until(lambda: link.reachable is False)
    assert "https://a..b is not a valid address" in link.trouble
    assert stage.is_running


async def test_a_defect_that_an_endpoint_triggers_ends_no_operator(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "PAUSE_S", 0.01)
    stage.put()
    with monkeypatch.context() as broken:
        broken.setattr(RedboxLink, "run", defect)
        stage.clusters.updated(stage.api.objects[path_of("mine")])
        await stage.until(lambda: "farm/mine" in stage.links.troubles)
    await stage.until(lambda: stage.links.get("farm/mine") is not None)
    assert stage.is_running


async def test_a_defect_in_a_status_ends_no_operator(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "PAUSE_S", 0.01)
    stage.put()
    with monkeypatch.context() as broken:
        calls: list[object] = []

        async def fail(writer: object, _: object) -> None:
            calls.append(writer)
            await defect(writer)

        broken.setattr(reconciler, "publish_audience", fail)
        stage.clusters.updated(stage.api.objects[path_of("mine")])
        await stage.until(lambda: len(calls) > 1)
    await stage.until(lambda: CONFIG_MAP in stage.api.objects)
    assert stage.is_running


async def defect(_: object) -> None:
    raise TypeError("a defect")


@pytest.mark.parametrize("at", ["2026-11-21T12:00:00", "0001-01-01T00:00:00+23:59"])
def test_a_time_of_no_zone_is_no_answer(at: str) -> None:
    """It cannot be compared with the time that it is."""
    described = {
        "name": "hpc1",
        "workloadManager": "slurm",
        "version": "24.11\x1b[2J" * 99,
        "redboxVersion": "1" * 9999,
        "accounting": True,
        "credentialsExpireAt": at,
    }
    if "+" not in at:
        with pytest.raises(ValidationError, match="timezone"):
            Cluster.model_validate(described)
        return
    status = status_of(Cluster.model_validate(described))
    assert status.version is not None
    assert status.version.isprintable()
    assert len(status.version + (status.redbox_version or "")) < 200


def test_the_operators_roles_are_published_and_stay_while_red_box_is_away() -> None:
    before = cluster_status_of(cluster_facts(roles=["requeue", "operator"]))
    assert before.operator_roles == ["operator", "requeue"]
    away = cluster_status_of(cluster_facts(before=before, roles=None, trouble="away"))
    assert away.operator_roles == ["operator", "requeue"]
    bounded = cluster_status_of(cluster_facts(cluster=slurm_endpoint(), roles=["\x1b" * 9999] * 9999))
    assert bounded.operator_roles is not None
    assert len("".join(bounded.operator_roles)) < 2000
    assert all(role.isprintable() for role in bounded.operator_roles)


def test_only_the_namespaced_kind_has_a_computed_audience() -> None:
    cluster = slurm_cluster()
    raw = {"metadata": cluster.metadata, "spec": cluster.spec.model_dump(by_alias=True)}
    assert read_cluster(raw).spec.audience == "redbox.dev/hpc1/4711"
    assert isinstance(
        read_cluster({"metadata": slurm_endpoint().metadata, "spec": raw["spec"]}), SlurmEndpoint
    )


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (timedelta(days=2), None),
        (timedelta(hours=23), "WithinADay"),
        (timedelta(minutes=59), "WithinAnHour"),
        (timedelta(minutes=-1), "Expired"),
        (None, None),
    ],
)
def test_credentials_that_expire_are_a_condition_a_day_and_an_hour_before(
    left: timedelta | None, reason: str | None
) -> None:
    description = Cluster(
        name="hpc1",
        workload_manager="slurm",
        version="24.11",
        redbox_version="1",
        accounting=True,
        credentials_expire_at=None if left is None else NOON + left,
    )
    conditions = status_of(description).conditions
    found = [condition.reason for condition in conditions if condition.type == "CredentialsExpire"]
    assert found == ([] if reason is None else [reason])


def status_of(description: Cluster) -> SlurmClusterStatus:
    return cluster_status_of(cluster_facts(cluster=slurm_endpoint(), description=description))
